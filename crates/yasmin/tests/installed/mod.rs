//! The command in a folder of its own, with a library that does nothing and a broker that
//! says what the test wants: what the command does must not depend on how far those two are.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketType, accept, bind, listen, recv, send, socket,
};
use tempfile::TempDir;
use yasmin_control::{CONTROL_VERSION, FromBroker, MESSAGE_BYTES, ToBroker};

pub struct Installed {
    folder: TempDir,
}

/// What the fake broker answers to everything.
#[derive(Clone)]
pub enum Answer {
    Welcome,
    Refuse { version: u32 },
    Status(String),
    Garbage,
    HangUp,
}

impl Installed {
    pub fn new() -> Self {
        let installed = Self { folder: TempDir::new().unwrap() };
        // A link would do but for /proc/self/exe, by which the command finds its folder.
        fs::copy(env!("CARGO_BIN_EXE_yasmin"), installed.folder().join("yasmin")).unwrap();
        let source = installed.folder().join("empty.c");
        fs::write(&source, "").unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-nostdlib", "-o", "libyasmin.so", "empty.c"])
            .current_dir(installed.folder())
            .status();
        assert!(built.expect("the tests need a C compiler").success());
        installed
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder().join("run/broker.sock")
    }

    /// Puts a `yasmind` beside the command.
    pub fn put_broker(&self, script: &str) {
        let path = self.folder().join("yasmind");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(self.folder().join("yasmin"));
        command.arg(subcommand).env("YASMIN_SOCKET", self.socket()).env_remove("LD_PRELOAD");
        command.env_remove("YASMIN_SPIN_US").current_dir(self.folder());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command("run").args(arguments).output().unwrap()
    }

    pub fn status(&self, arguments: &[&str]) -> Output {
        self.command("status").args(arguments).output().unwrap()
    }

    /// Listens at `socket()` until the test ends.
    pub fn fake_broker(&self, answer: Answer) {
        fs::create_dir_all(self.socket().parent().unwrap()).unwrap();
        let listener = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        bind(&listener, &SocketAddrUnix::new(self.socket()).unwrap()).unwrap();
        listen(&listener, 16).unwrap();
        std::thread::spawn(move || {
            while let Ok(client) = accept(&listener) {
                serve(&client, &answer);
            }
        });
    }
}

fn serve(client: &OwnedFd, answer: &Answer) {
    let mut datagram = [0; MESSAGE_BYTES];
    while let Ok((_, len)) = recv(client, &mut datagram[..], rustix::net::RecvFlags::empty()) {
        if len == 0 {
            return;
        }
        ToBroker::decode(&datagram[..len]).expect("the command sends only good messages");
        let reply = match answer {
            Answer::Welcome => FromBroker::Welcome { version: CONTROL_VERSION }.encode(),
            Answer::Refuse { version } => FromBroker::Refused { version: *version }.encode(),
            Answer::Status(text) => FromBroker::Status { len_bytes: text.len() as u64 }.encode(),
            Answer::Garbage => [0xff; MESSAGE_BYTES],
            Answer::HangUp => return,
        };
        let mut replies = vec![reply.to_vec()];
        if let Answer::Status(text) = answer {
            // One part, and the empty one that ends the status.
            replies[0].extend_from_slice(text.as_bytes());
            replies.push(FromBroker::Status { len_bytes: 0 }.encode().to_vec());
        }
        for reply in replies {
            if send(client, &reply, SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    }
}

/// What was written to stderr, which must be one line.
pub fn one_line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(text.ends_with('\n') && text.lines().count() == 1, "not one line: {text:?}");
    text.trim_end().to_owned()
}
