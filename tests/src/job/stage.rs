//! Where a job runs: two sites, a folder, and commands under `yasmin run` or not.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Record, Way};
use crate::installed::find;
use crate::lab::{Lab, artefact};
use crate::netns::{Site, allowed};
use crate::pattern::Pattern;
use crate::process::Process;
use crate::status;

/// How often the broker is asked which connections have no channel.
const SAMPLE_EVERY: Duration = Duration::from_millis(300);
/// How long the counters of the last connections may take to arrive.
const SETTLE: Duration = Duration::from_secs(2);

/// Who has no channel and why: program, reason, local and peer address.
type Without = Arc<Mutex<HashSet<(String, String)>>>;

pub struct Stage {
    pub way: Way,
    pub lab: Lab,
    /// World-readable, and so are `yasmin` and the library in it: servers change their user.
    bin: PathBuf,
    without: Without,
    over: Arc<AtomicBool>,
    sampler: Option<JoinHandle<()>>,
}

/// One command line, still to be started.
pub struct Line<'a> {
    stage: &'a Stage,
    site: &'a Site,
    user: Option<&'a str>,
    environment: Vec<(&'a str, String)>,
    words: Vec<String>,
    is_plain: bool,
}

impl Stage {
    #[track_caller]
    pub(super) fn new(way: Way, lab: Lab) -> Self {
        let bin = lab.folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        for name in ["yasmin", "libyasmin.so"] {
            std::fs::copy(artefact(name), bin.join(name)).unwrap();
        }
        let (without, over) = (Without::default(), Arc::new(AtomicBool::new(false)));
        let sampler = lab.broker.is_some().then(|| {
            let (socket, without, over) = (lab.socket(), without.clone(), over.clone());
            std::thread::spawn(move || sample(&socket, &without, &over))
        });
        Self { way, lab, bin, without, over, sampler }
    }

    /// For the job's files; other users may read it.
    pub fn folder(&self) -> &Path {
        self.lab.folder.path()
    }

    pub fn path(&self, name: &str) -> String {
        self.folder().join(name).display().to_string()
    }

    #[track_caller]
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.folder().join(name);
        std::fs::write(&path, text).unwrap_or_else(|error| panic!("{name}: {error}"));
        path.display().to_string()
    }

    /// A file of `len_bytes` bytes that never repeat.
    #[track_caller]
    pub fn write_pattern(&self, name: &str, seed: u64, len_bytes: usize) -> String {
        let mut data = vec![0; len_bytes];
        Pattern::new(seed).fill(0, &mut data);
        self.write(name, data)
    }

    /// A folder that belongs to `user`.
    #[track_caller]
    pub fn make_folder(&self, name: &str, user: Option<&str>) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(&path).unwrap();
        if let Some(user) = user.filter(|_| allowed()) {
            let done = Command::new("chown").args([user, &path]).status();
            assert!(done.is_ok_and(|status| status.success()), "chown {user} {path}");
        }
        path
    }

    /// A port that nobody has now.
    #[track_caller]
    pub fn port() -> u16 {
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        listener.local_addr().unwrap().port()
    }

    /// The address of the servers' site.
    pub fn ip(&self) -> String {
        self.lab.a.v4().to_string()
    }

    /// A program at the servers' site.
    #[track_caller]
    pub fn server<'a, W: AsRef<OsStr>>(&'a self, name: &str, words: &[W]) -> Line<'a> {
        self.line(&self.lab.a, name, words)
    }

    /// A program at the clients' site.
    #[track_caller]
    pub fn client<'a, W: AsRef<OsStr>>(&'a self, name: &str, words: &[W]) -> Line<'a> {
        self.line(&self.lab.b, name, words)
    }

    #[track_caller]
    fn line<'a, W: AsRef<OsStr>>(&'a self, site: &'a Site, name: &str, words: &[W]) -> Line<'a> {
        let program = find(name).unwrap_or_else(|| panic!("{name} is not installed"));
        let rest = words.iter().map(|word| word.as_ref().to_string_lossy().into_owned());
        let words = std::iter::once(program.display().to_string()).chain(rest).collect();
        Line { stage: self, site, user: None, environment: Vec::new(), words, is_plain: false }
    }

    /// Ends what is left and writes down what went where.
    pub(super) fn account(&self, record: &mut Record) {
        self.over.store(true, Ordering::Relaxed);
        record.wire_bytes = self.lab.wire_bytes();
        self.lab.clear_namespaces();
        // The counters of a connection are final when the broker has seen both ends go.
        let begun = Instant::now();
        while let Some(status) = self.lab.status() {
            let bytes = status::bytes_in_all(&status);
            (record.ring_bytes, record.tcp_bytes) = (bytes.ring, bytes.tcp);
            record.channels = status.broker.channels_total;
            if status.broker.processes == 0 || begun.elapsed() > SETTLE {
                break;
            }
            std::thread::sleep(crate::process::LOOK_EVERY);
        }
        let mut counts = BTreeMap::new();
        for (who, _) in self.without.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            *counts.entry(who.clone()).or_insert(0) += 1;
        }
        record.without = counts;
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.lab.clear_namespaces();
        if let Some(sampler) = self.sampler.take() {
            let _ = sampler.join();
        }
    }
}

fn sample(socket: &Path, without: &Without, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        if let Ok(status) = status::ask(socket) {
            let mut without = without.lock().unwrap_or_else(PoisonError::into_inner);
            for connection in status.connections {
                let Some(reason) = connection.reason else { continue };
                for end in connection.ends {
                    let who = format!("{}: {reason}", end.program);
                    without.insert((who, format!("{} {}", end.local, end.peer)));
                }
            }
        }
        std::thread::sleep(SAMPLE_EVERY);
    }
}

impl Line<'_> {
    /// As this user, where the tests run as root.
    pub fn user(mut self, user: &'static str) -> Self {
        self.user = Some(user);
        self
    }

    pub fn env(mut self, key: &'static str, value: impl Into<String>) -> Self {
        self.environment.push((key, value.into()));
        self
    }

    /// Without `yasmin run`, in every way.
    pub fn plain(mut self) -> Self {
        self.is_plain = true;
        self
    }

    fn command(&self) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(user) = self.user.filter(|_| allowed()) {
            let change = ["setpriv", "--reuid", user, "--regid", user, "--init-groups"];
            words.extend(change.map(str::to_owned));
        }
        if !self.is_plain {
            words.extend(self.stage.lab.run_words(&self.stage.bin));
        }
        words.extend(self.words.iter().cloned());
        let settings = self.stage.lab.settings();
        let own = self.environment.iter().map(|(key, value)| (*key, value.clone()));
        let environment = settings.into_iter().chain(own);
        let mut command = self.site.command(Path::new(&words[0]), environment);
        command.args(&words[1..]).current_dir(self.stage.folder());
        command
    }

    fn name(&self) -> String {
        let name = Path::new(&self.words[0]).file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    #[track_caller]
    pub fn start(self) -> Process {
        Process::start(&self.name(), &mut self.command(), &self.stage.lab.registry)
    }

    /// Starts a server and waits until it listens on `port`.
    #[track_caller]
    pub fn listen(self, port: u16) -> Process {
        let site = self.site.clone();
        let mut server = self.start();
        server.wait_until_listening(&site, port);
        server
    }

    /// Runs to the end, which must be a good one, and gives back what it printed.
    #[track_caller]
    pub fn run(self) -> String {
        self.start().run()
    }
}
