//! `yasmin host leave GUEST -- COMMAND`, against a broker that is played here.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use yasmin_control::host::{Answer, Ask};

/// Answers everything as it is told, and writes down what it was asked.
struct Broker {
    folder: PathBuf,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Broker {
    fn new(name: &str, leave: Answer) -> Self {
        let folder =
            std::env::temp_dir().join(format!("yasmin-host-leave-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(folder.join("host.sock")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let mut line = String::new();
                BufReader::new(&socket).read_line(&mut line).unwrap();
                let (note, answer) = match serde_json::from_str(&line).unwrap() {
                    Ask::Leave { guests, within_s } => {
                        (format!("leave {} {within_s}", guests.join(" ")), leave.clone())
                    }
                    Ask::Join { guests } => (format!("join {}", guests.join(" ")), Answer::Done),
                    other => panic!("asked for {other:?}"),
                };
                notes.lock().unwrap().push(note);
                let answer = serde_json::to_string(&answer).unwrap();
                (&socket).write_all(format!("{answer}\n").as_bytes()).unwrap();
            }
        });
        Self { folder, asked }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yasmin"));
        command.args(["host", "leave", "--socket"]).arg(self.folder.join("host.sock")).args(words);
        command
    }

    /// Exit code, what it says, and what the broker was asked since.
    fn run(&self, words: &[&str]) -> (i32, String, Vec<String>) {
        let Output { status, stderr, .. } = self.command(words).output().unwrap();
        let asked = std::mem::take(&mut *self.asked.lock().unwrap());
        (status.code().unwrap(), String::from_utf8(stderr).unwrap(), asked)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn a_guest_leaves_and_the_command_moves_it() {
    let broker = Broker::new("moves", Answer::Done);
    let there = broker.folder.join("there");
    let touch = format!("echo $1 >{}", there.display());
    let words = ["web", "--within", "7", "--", "sh", "-c", &touch, "sh", "--live"];
    let (code, says, asked) = broker.run(&words);
    assert_eq!((code, &*says), (0, ""));
    assert_eq!(asked, ["leave web 7"]);
    assert_eq!(std::fs::read_to_string(there).unwrap(), "--live\n");
}

#[test]
fn a_guest_that_is_not_moved_joins_again() {
    let broker = Broker::new("fails", Answer::Done);
    for (command, code, wanted) in [
        (&["sh", "-c", "exit 3"][..], 3, "web has not moved, and may have memory again"),
        (&["sh", "-c", "kill -9 $$"], 137, "may have memory again"),
        (&["/nowhere/at-all"], 127, "cannot run /nowhere/at-all"),
        (&["/"], 126, "cannot run /"),
    ] {
        let words = [&["web", "--"][..], command].concat();
        let (found, says, asked) = broker.run(&words);
        assert_eq!(found, code, "{command:?}: {says}");
        assert!(says.contains(wanted), "{command:?}: {says}");
        assert_eq!(asked, ["leave web 30", "join web"], "{command:?}");
    }
}

#[test]
fn a_guest_that_cannot_leave_is_not_moved() {
    let broker = Broker::new("refused", Answer::Refused("web still has memory".to_owned()));
    let there = broker.folder.join("there");
    let (code, says, asked) = broker.run(&["web", "--", "touch", there.to_str().unwrap()]);
    assert_eq!((code, &*says), (1, "yasmin: web still has memory\n"));
    assert_eq!(asked, ["leave web 30", "join web"]);
    assert!(!there.exists());
    // Without a command it goes on leaving.
    let (code, _, asked) = broker.run(&["web"]);
    assert_eq!((code, &*asked), (1, &["leave web 30".to_owned()][..]));
    // Two guests do not move as one.
    let (code, says, asked) = broker.run(&["web", "db", "--", "true"]);
    assert!(code == 1 && says.contains("a command moves one guest"), "{code} {says}");
    assert!(asked.is_empty());
}

#[test]
fn what_is_sent_to_it_is_the_commands() {
    let broker = Broker::new("signals", Answer::Done);
    let ready = broker.folder.join("ready");
    let waits =
        format!("trap 'exit 5' TERM; echo >{}; while :; do sleep 0.05; done", ready.display());
    let mut child =
        broker.command(&["web", "--", "sh", "-c", &waits]).process_group(0).spawn().unwrap();
    while !ready.exists() {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        std::thread::yield_now();
    }
    let term = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(term.success());
    assert_eq!(child.wait().unwrap().code(), Some(5));
    assert_eq!(*broker.asked.lock().unwrap(), ["leave web 30", "join web"]);
}
