//! A child process that talks in lines, and what to show of it when it hangs.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::netns::Site;

/// How long any single step may take. Far beyond what a loaded machine needs: a test fails on
/// it when something hangs, not when something is slow.
/// `YASMIN_TEST_DEADLINE_S` changes it.
pub fn deadline() -> Duration {
    let asked = std::env::var("YASMIN_TEST_DEADLINE_S").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(60))
}

/// How often a state that nobody announces is looked at.
pub const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What is left of a deadline. A pause of the whole machine counts as one step of it: nobody hangs
/// because nothing ran.
pub struct Patience {
    left: Duration,
    last: Instant,
}

impl Patience {
    /// The longest step.
    pub const STEP: Duration = Duration::from_secs(1);

    pub fn new(limit: Duration) -> Self {
        Self { left: limit, last: Instant::now() }
    }

    /// After a step; false: the time is over.
    pub fn lasts(&mut self) -> bool {
        self.left = self.left.saturating_sub(self.last.elapsed().min(Self::STEP));
        self.last = Instant::now();
        !self.left.is_zero()
    }
}

/// The processes of one lab, for a report when one of them hangs.
#[derive(Clone, Default)]
pub struct Registry {
    running: Arc<Mutex<Vec<(String, u32)>>>,
}

impl Registry {
    fn add(&self, name: &str, pid: u32) {
        self.lock().push((name.to_owned(), pid));
    }

    fn remove(&self, pid: u32) {
        self.lock().retain(|(_, other)| *other != pid);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(String, u32)>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where every thread of every process of the lab is.
    pub fn describe(&self) -> String {
        let running = self.lock().clone();
        let before: Vec<Moves> = running.iter().map(|(_, pid)| Moves::of(*pid)).collect();
        std::thread::sleep(Moves::WATCHED);
        let mut out = String::new();
        for ((name, pid), before) in running.into_iter().zip(before) {
            let _ = writeln!(out, "---- {name}, pid {pid}, {}", before.until(&Moves::of(pid)));
            out.push_str(&describe_process(pid));
        }
        out
    }
}

/// What tells a process that hangs from one that is slow.
struct Moves {
    ticks: u64,
    switches: u64,
}

impl Moves {
    const WATCHED: Duration = Duration::from_secs(2);

    /// So far: the CPU of all threads, the switches of the first one. Of one that is gone, 0.
    fn of(pid: u32) -> Self {
        let text = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
        let stat = text("stat").unwrap_or_default();
        // Behind the name, which may hold anything: utime and stime are fields 14 and 15.
        let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let ticks = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        let status = text("status").unwrap_or_default();
        let count = |line: &str| line.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok();
        Self { ticks, switches: status.lines().filter_map(count).sum() }
    }

    fn until(&self, now: &Self) -> String {
        format!(
            "in {} s {} ticks of CPU and {} switches of its first thread",
            Self::WATCHED.as_secs(),
            now.ticks.saturating_sub(self.ticks),
            now.switches.saturating_sub(self.switches)
        )
    }
}

fn describe_process(pid: u32) -> String {
    let mut out = String::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return "gone\n".to_owned();
    };
    for task in tasks.flatten() {
        let _ = writeln!(out, "thread {}:", task.file_name().display());
        for file in ["wchan", "syscall", "stack"] {
            if let Ok(text) = fs::read_to_string(task.path().join(file)) {
                let _ = writeln!(out, "  {file}: {}", text.trim().replace('\n', "\n    "));
            }
        }
    }
    let backtrace = Command::new("timeout")
        .args(["20", "gdb", "-nx", "-batch", "-p", &pid.to_string()])
        .args(["-ex", "thread apply all bt 9"])
        .stdin(Stdio::null())
        .output();
    if let Ok(backtrace) = backtrace {
        out.push_str(&String::from_utf8_lossy(&backtrace.stdout));
    }
    out
}

/// A running program with its output collected. Killed when dropped.
pub struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// Each ends with an output of the program.
    collectors: Vec<JoinHandle<()>>,
    /// The last lines of both outputs.
    tail: Arc<Mutex<VecDeque<String>>>,
    registry: Registry,
}

fn collect(
    input: impl Read + Send + 'static,
    tail: Arc<Mutex<VecDeque<String>>>,
    mut sink: impl FnMut(String) + Send + 'static,
) -> JoinHandle<()> {
    const KEPT: usize = 5000;
    std::thread::spawn(move || {
        for line in BufReader::new(input).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).into_owned();
            let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
            if tail.len() == KEPT {
                tail.pop_front();
            }
            tail.push_back(line.clone());
            drop(tail);
            sink(line);
        }
    })
}

impl Process {
    /// Starts `command` with its three standard streams connected to the test.
    #[track_caller]
    pub fn start(name: &str, command: &mut Command, registry: &Registry) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{name} cannot be started ({command:?}): {error}"));
        registry.add(name, child.id());
        let (sender, lines) = channel();
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let said = child
            .stdout
            .take()
            .map(|stdout| collect(stdout, tail.clone(), move |line| drop(sender.send(line))));
        let told = child.stderr.take().map(|stderr| collect(stderr, tail.clone(), |_| ()));
        let collectors = said.into_iter().chain(told).collect();
        let stdin = child.stdin.take();
        Self {
            name: name.to_owned(),
            child,
            stdin,
            lines,
            collectors,
            tail,
            registry: registry.clone(),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines that it wrote.
    pub fn output(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.iter().map(|line| format!("  {line}\n")).collect()
    }

    /// What it said last is still on its way, unless somebody else has the other end too.
    fn wait_for_outputs(&self) {
        let until = Instant::now() + Duration::from_secs(1);
        while !self.collectors.iter().all(JoinHandle::is_finished) && Instant::now() < until {
            std::thread::sleep(LOOK_EVERY);
        }
    }

    #[track_caller]
    fn hang(&self, waited_for: &str) -> ! {
        panic!(
            "{} hangs: no {waited_for} within {:?}; its output:\n{}{}",
            self.name,
            deadline(),
            self.output(),
            self.registry.describe()
        )
    }

    /// The next line of its standard output within `limit`; `Some(None)` once that has ended.
    pub fn line_within(&mut self, limit: Duration) -> Option<Option<String>> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Some(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Some(None),
            Err(RecvTimeoutError::Timeout) => None,
        }
    }

    /// The next line of its standard output; `None` once that has ended.
    #[track_caller]
    pub fn next_line(&mut self) -> Option<String> {
        let mut patience = Patience::new(deadline());
        loop {
            match self.line_within(Patience::STEP) {
                Some(line) => return line,
                None if patience.lasts() => {}
                None => self.hang("line"),
            }
        }
    }

    /// Reads lines until one begins with `word`; gives what follows that.
    #[track_caller]
    pub fn expect(&mut self, word: &str) -> String {
        loop {
            match self.next_line() {
                Some(line) => {
                    if let Some(rest) = line.strip_prefix(word) {
                        return rest.trim().to_owned();
                    }
                }
                None => {
                    let status = self.wait();
                    self.wait_for_outputs();
                    panic!(
                        "{} ended ({status}) without saying {word:?}; its output:\n{}",
                        self.name,
                        self.output()
                    );
                }
            }
        }
    }

    /// Sends one line to its standard input.
    #[track_caller]
    pub fn say(&mut self, line: &str) {
        let sent = match &mut self.stdin {
            Some(stdin) => writeln!(stdin, "{line}").and_then(|()| stdin.flush()),
            None => panic!("{}: input is closed", self.name),
        };
        if let Err(error) = sent {
            let status = self.wait();
            self.wait_for_outputs();
            panic!("{} ended ({status}) before {line:?}: {error}\n{}", self.name, self.output());
        }
    }

    /// Closes its standard input: peers that wait to be released then go on.
    pub fn release(&mut self) {
        self.stdin = None;
    }

    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        self.stdin = None;
        let mut patience = Patience::new(deadline());
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.registry.remove(self.child.id());
                self.wait_for_outputs();
                return status;
            }
            std::thread::sleep(LOOK_EVERY);
            if !patience.lasts() {
                self.hang("end");
            }
        }
    }

    /// Waits until it has ended well, and fails with its output otherwise.
    #[track_caller]
    pub fn finish(&mut self) {
        let status = self.wait();
        assert!(status.success(), "{} ended with {status}:\n{}", self.name, self.output());
    }

    /// Lets it run to its end, which must be a good one, and gives back what it printed.
    #[track_caller]
    pub fn run(mut self) -> String {
        self.release();
        let mut text = String::new();
        while let Some(line) = self.next_line() {
            text.push_str(&line);
            text.push('\n');
        }
        self.finish();
        text
    }

    /// Waits until somebody at `site` listens on `port`, without connecting; it must not end
    /// before.
    #[track_caller]
    pub fn wait_until_listening(&mut self, site: &Site, port: u16) {
        let wanted = format!("{port:04X}");
        let listens = |line: &str| {
            let mut words = line.split_whitespace().skip(1);
            let local = words.next().unwrap_or_default();
            local.rsplit(':').next() == Some(&wanted) && words.nth(1) == Some("0A")
        };
        let ended = eventually(
            "a listening server",
            || {
                let tables = site
                    .command(Path::new("cat"), [])
                    .args(["/proc/net/tcp", "/proc/net/tcp6"])
                    .output()
                    .ok()?;
                let is_there = String::from_utf8_lossy(&tables.stdout).lines().any(listens);
                (is_there || self.has_ended()).then_some(!is_there)
            },
            || format!("port {port}"),
        );
        assert!(!ended, "the server ended:\n{}", self.output());
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.registry.remove(self.child.id());
    }

    /// Stops it where it is, or lets it go on.
    pub fn freeze(&self, frozen: bool) {
        let signal = if frozen { crate::sys::libc::SIGSTOP } else { crate::sys::libc::SIGCONT };
        let _ = crate::sys::kill(self.child.id().cast_signed(), signal);
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.pid())).map_or(0, Iterator::count)
    }

    /// How many mappings it has.
    pub fn mappings(&self) -> usize {
        fs::read_to_string(format!("/proc/{}/maps", self.pid()))
            .map_or(0, |maps| maps.lines().count())
    }

    /// Nanoseconds that its threads have run.
    pub fn cpu_ns(&self) -> u64 {
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid())) else { return 0 };
        tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("schedstat")).ok())
            .filter_map(|text| text.split_whitespace().next()?.parse::<u64>().ok())
            .sum()
    }

    /// Its share of memory, shared pages divided among their users.
    pub fn memory_bytes(&self) -> u64 {
        fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid()))
            .ok()
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("Pss:"))?;
                line.split_whitespace().nth(1)?.parse::<u64>().ok()
            })
            .map_or(0, |kib| kib * 1024)
    }

    /// As Ctrl-C does.
    pub fn interrupt(&self) {
        self.signal(crate::sys::libc::SIGINT);
    }

    pub fn signal(&self, signal: i32) {
        let _ = crate::sys::kill(self.child.id().cast_signed(), signal);
    }

    /// Asks it to end, as an operator would.
    #[track_caller]
    pub fn terminate(&mut self) -> ExitStatus {
        let _ = crate::sys::kill(self.child.id().cast_signed(), crate::sys::libc::SIGTERM);
        self.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Looks until `condition` gives a value; fails with what `describe` says when it never does.
#[track_caller]
pub fn eventually<T>(
    what: &str,
    mut condition: impl FnMut() -> Option<T>,
    describe: impl FnOnce() -> String,
) -> T {
    let mut patience = Patience::new(deadline());
    loop {
        if let Some(value) = condition() {
            return value;
        }
        assert!(patience.lasts(), "never came: {what}; {}", describe());
        std::thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_counts_as_one_step() {
        let mut patience = Patience::new(Patience::STEP * 3);
        patience.last = Instant::now().checked_sub(Duration::from_secs(1000)).expect("long up");
        assert!(patience.lasts());
        assert!(patience.left > Patience::STEP && patience.left <= Patience::STEP * 2);
    }

    #[test]
    fn it_comes_to_an_end() {
        let mut patience = Patience::new(Duration::from_millis(20));
        let begun = Instant::now();
        while patience.lasts() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}
