//! `yasmin place watch`: the loop, driven until it is told to stop.

use std::fs::OpenOptions;
use std::io::{BufWriter, IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use yasmin_watch::journal::Journal;
use yasmin_watch::record::{Record, Settings};
use yasmin_watch::watch::{Event, Options, Watch};

use super::metrics::{Server, Snapshot};
use super::view::View;
use super::{cli, journal, replay, sources};

pub fn run(options: &cli::Watch) -> anyhow::Result<()> {
    ensure!((0.05..=3600.0).contains(&options.period), "--period: from 0.05 to 3600 seconds");
    let seconds = options.seconds.unwrap_or(f64::MAX / 4.0);
    ensure!(seconds > 0.0, "--seconds: more than 0 are needed");
    let mut settings = Settings::default();
    replay::apply(&options.decide, &mut settings);
    let overrides = sources::overrides(options.sources.overrides.as_deref())?.only(&options.only);
    let cpus = options.cpus.as_deref().map(yasmin_topology::parse_cpus).transpose()?;
    let journal = if options.dry_run { None } else { Some(recovered(options)?) };
    // Before anything can be pinned.
    let (stop, stopped) = channel();
    ctrlc::set_handler(move || {
        let _ = stop.send(());
    })?;
    let mut watch = Watch::new(
        Options {
            settings,
            period: Duration::from_secs_f64(options.period),
            dry_run: options.dry_run,
            memory: options.move_memory,
            cpus,
        },
        overrides,
        sources::open(&options.sources)?,
        journal,
    )?;
    let metrics = options.metrics.map(Server::start).transpose()?;
    if let Some(metrics) = &metrics {
        eprintln!("yasmin: metrics at http://{}/metrics", metrics.address());
    }
    let mut teller = Teller::new(options)?;
    teller.tell(&[Event::Record(watch.start())])?;
    let ended = drive(&mut watch, &mut teller, metrics.as_ref(), seconds, &stopped);
    // Whatever went wrong, pinnings go back first.
    let last = watch.stop();
    drop(teller.view.take());
    ended.and(teller.tell(&last))
}

/// Looks until it is over.
fn drive(
    watch: &mut Watch,
    teller: &mut Teller,
    metrics: Option<&Server>,
    seconds: f64,
    stopped: &std::sync::mpsc::Receiver<()>,
) -> anyhow::Result<()> {
    let mut due = Instant::now();
    loop {
        let (wait, events) = watch.step();
        teller.tell(&events)?;
        if let Some(metrics) = metrics {
            metrics.set(Snapshot::of(watch));
        }
        // From look to look, however long the look took; what was missed is not made up for.
        due = (due + wait).max(Instant::now());
        loop {
            if let Some(view) = &mut teller.view
                && view.show(watch)?
            {
                return Ok(());
            }
            if watch.at_s() >= seconds {
                return Ok(());
            }
            let left_s = (seconds - watch.at_s()).clamp(0.0, 3600.0);
            let mut pause = due.saturating_duration_since(Instant::now());
            if teller.view.is_some() {
                pause = pause.min(View::FRAME);
            }
            match stopped.recv_timeout(pause.min(Duration::from_secs_f64(left_s))) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if Instant::now() >= due {
                break;
            }
        }
    }
}

/// The journal, after what a killed predecessor left has been put back.
fn recovered(options: &cli::Watch) -> anyhow::Result<Journal> {
    let mut journal = Journal::open(&journal::path(&options.journal))?;
    let left = journal.steps().len();
    if left > 0 {
        let troubles = journal.undo(0);
        eprintln!("yasmin: put back {} settings that an earlier watch left", left - troubles.len());
        troubles.iter().for_each(|trouble| eprintln!("yasmin: {trouble}"));
    }
    Ok(journal)
}

/// Lines or the view for people, the log for `replay`.
struct Teller {
    view: Option<View>,
    log: Option<BufWriter<std::fs::File>>,
    log_name: String,
}

impl Teller {
    fn new(options: &cli::Watch) -> anyhow::Result<Self> {
        let open = |path: &std::path::PathBuf| {
            let file = OpenOptions::new().create(true).write(true).truncate(true).open(path);
            file.map(BufWriter::new).with_context(|| path.display().to_string())
        };
        let log = options.log.as_ref().map(open).transpose()?;
        let log_name = options.log.as_ref().map_or_else(String::new, |p| p.display().to_string());
        let in_terminal = std::io::stdout().is_terminal() && !options.plain;
        let view = in_terminal.then(View::open).transpose()?;
        Ok(Self { view, log, log_name })
    }

    fn tell(&mut self, events: &[Event]) -> anyhow::Result<()> {
        for event in events {
            match event {
                Event::Record(record) => self.write(record)?,
                Event::Note(line) => self.say(line),
            }
        }
        if let Some(log) = &mut self.log {
            log.flush().with_context(|| self.log_name.clone())?;
        }
        Ok(())
    }

    fn write(&mut self, record: &Record) -> anyhow::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        serde_json::to_writer(&mut *log, record)?;
        log.write_all(b"\n").with_context(|| self.log_name.clone())
    }

    /// Who reads may have gone; the loop goes on.
    fn say(&mut self, line: &str) {
        match &mut self.view {
            Some(view) => view.note(line),
            None => drop(writeln!(std::io::stdout(), "{line}")),
        }
    }
}
