//! A command, processes to be placed, traffic that a file tells, and where they are pinned.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longer than anything takes, on a machine that does much else besides.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn yasmin(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yasmin"));
    command.arg("place").args(arguments).env("YASMIN_SOCKET", "/nonexistent/broker.sock");
    command
}

pub fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// A process that ends with the test.
pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub fn sleeper() -> Self {
        Self::start(Command::new("sleep").arg("600"))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The CPUs that a process may use, as the kernel lists them.
pub fn allowed(pid: u32) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

/// A folder with a traffic file and a journal.
pub struct World {
    folder: TempDir,
    pub sleepers: Vec<Process>,
}

impl World {
    /// Sleepers that are called f0, f1 and so on.
    pub fn new(functions: usize) -> Self {
        let sleepers = (0..functions).map(|_| Process::sleeper()).collect();
        Self { folder: tempfile::tempdir().unwrap(), sleepers }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Tells traffic between pairs of functions, in bytes a second.
    pub fn tell(&self, links: &[(usize, usize, u64)]) {
        let mut text = String::from("{\"functions\": [");
        for (at, sleeper) in self.sleepers.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(text, "{comma}{{\"name\": \"f{at}\", \"pid\": {}}}", sleeper.pid()).unwrap();
        }
        text += "], \"links\": [";
        for (at, (from, to, rate)) in links.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(
                text,
                "{comma}{{\"from\": \"f{from}\", \"to\": \"f{to}\", \"rate_bytes_s\": {rate}}}"
            )
            .unwrap();
        }
        text += "]}";
        // Whole or not at all: it is read at any time.
        fs::write(self.path("new"), text).unwrap();
        fs::rename(self.path("new"), self.path("traffic.json")).unwrap();
    }

    pub fn watch(&self, more: &[&str]) -> Command {
        let mut command = yasmin(&["watch", "--plain", "--traffic-file"]);
        command.arg(self.path("traffic.json")).arg("--journal").arg(self.path("journal"));
        // All of them, whatever else is pinned on this machine.
        command.args(["--cpus", "0-1023", "--policy", "chain-first"]).args(more);
        command
    }

    pub fn undo(&self) -> Output {
        yasmin(&["undo", "--journal"]).arg(self.path("journal")).output().unwrap()
    }

    pub fn allowed(&self) -> Vec<String> {
        self.sleepers.iter().map(|sleeper| allowed(sleeper.pid())).collect()
    }
}

/// A `watch` that runs, and its lines as they come.
pub struct Watching {
    pub process: Process,
    lines: Receiver<String>,
}

impl Watching {
    pub fn start(command: &mut Command) -> Self {
        command.stdout(Stdio::piped());
        let mut process = Process::start(command);
        let out = BufReader::new(process.0.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, lines }
    }

    /// Waits for a line with these words.
    #[track_caller]
    pub fn until(&self, words: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no {words:?} ({error}) in:\n{}", seen.join("\n")),
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.pid()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub fn ends(mut self) -> bool {
        self.process.0.wait().unwrap().success()
    }
}

/// Waits until it is so, looking again and again.
#[track_caller]
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::sleep(Duration::from_millis(20));
    }
}
