//! Segments: a broker, and members that do as they are told (`tests/segment/member.c`).

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::{BrokerProcess, Folder, artefact};
use crate::process::{Process, Registry};

/// Rights and flags of yasmin.h.
pub const READ: u32 = 1;
pub const WRITE: u32 = 2;
pub const SPARSE: u32 = 4;
pub const ANYWHERE: u32 = 1;

/// The user that is meant where another one than root is.
pub const NOBODY: u32 = 65534;

pub fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// A broker, the C library as it is installed, and members of any user. Drop order: processes,
/// then their folder.
pub struct Host {
    pub broker: BrokerProcess,
    pub registry: Registry,
    pub folder: Folder,
    arguments: Vec<String>,
}

/// What a member says: its value, or error number and sentence.
pub type Said = Result<String, (i32, String)>;

impl Host {
    /// # Panics
    /// No broker, or no C compiler.
    #[track_caller]
    pub fn new(arguments: &[&str]) -> Self {
        let (folder, registry) = (Folder::new(), Registry::default());
        let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
        let broker = start(&folder, &arguments, &registry);
        let host = Self { broker, registry, folder, arguments };
        host.install();
        host
    }

    fn install(&self) {
        let library = artefact("libyasmin_segment_c.so");
        for name in ["libyasmin-segment.so", "libyasmin-segment.so.0"] {
            std::os::unix::fs::symlink(&library, self.folder.path().join(name)).unwrap();
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/segment/member.c");
        self.compile(&source, "member", &[]);
    }

    /// A C program that links with the library.
    #[track_caller]
    pub fn compile(&self, source: &Path, name: &str, options: &[&str]) -> PathBuf {
        let program = self.folder.path().join(name);
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/segment/include");
        let folder = self.folder.path().display().to_string();
        let output = Command::new("cc")
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1"])
            .args(options)
            .arg("-I")
            .arg(include)
            .arg(source)
            .args([&format!("-L{folder}"), &format!("-Wl,-rpath,{folder}"), "-lyasmin-segment"])
            .arg("-o")
            .arg(&program)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("broker.sock")
    }

    pub fn environment(&self) -> [(&'static str, String); 2] {
        [
            ("YASMIN_SOCKET", self.socket().display().to_string()),
            ("LD_LIBRARY_PATH", self.folder.path().display().to_string()),
        ]
    }

    /// The next broker, where the last one was.
    #[track_caller]
    pub fn restart(&mut self) {
        self.broker = start(&self.folder, &self.arguments, &self.registry);
    }

    /// Starts a command with what finds the broker and the library.
    #[track_caller]
    pub fn start(&self, name: &str, command: &mut Command) -> Process {
        Process::start(name, command.envs(self.environment()), &self.registry)
    }

    #[track_caller]
    pub fn member(&self) -> Member {
        let program = self.folder.path().join("member");
        Member { process: self.start("member", &mut Command::new(program)) }
    }

    /// A member of another user, who has no rights that a user has not.
    #[track_caller]
    pub fn member_as(&self, uid: u32) -> Member {
        let (user, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
        let mut command = Command::new("setpriv");
        command.args([&user, &group, "--clear-groups"]).arg(self.folder.path().join("member"));
        Member { process: self.start("member", &mut command) }
    }
}

#[track_caller]
fn start(folder: &Folder, arguments: &[String], registry: &Registry) -> BrokerProcess {
    let socket = folder.path().join("broker.sock");
    BrokerProcess::start_with(&socket, arguments, registry)
}

pub struct Member {
    pub process: Process,
}

impl Member {
    /// # Errors
    /// What the member says of an error.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> Said {
        self.process.say(line);
        let answer = self
            .process
            .next_line()
            .unwrap_or_else(|| panic!("the member ended at {line:?}:\n{}", self.process.output()));
        if let Some(value) = answer.strip_prefix("ok") {
            return Ok(value.trim().to_owned());
        }
        let error = answer.strip_prefix("error ").unwrap_or_else(|| panic!("{line}: {answer}"));
        let (errno, sentence) = error.split_once(' ').unwrap_or((error, ""));
        Err((errno.parse().unwrap(), sentence.to_owned()))
    }

    #[track_caller]
    pub fn tell(&mut self, line: &str) -> String {
        self.ask(line).unwrap_or_else(|error| panic!("{line}: {error:?}"))
    }

    /// It must not be done, for this reason, and be told in a sentence with these words.
    #[track_caller]
    pub fn is_refused(&mut self, line: &str, errno: i32, words: &[&str]) {
        let (found, sentence) = self.ask(line).expect_err(line);
        assert_eq!(found, errno, "{line}: {sentence}");
        for word in words {
            assert!(sentence.contains(word), "{line}: no {word:?} in: {sentence}");
        }
    }
}
