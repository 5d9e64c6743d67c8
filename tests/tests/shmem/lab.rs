//! An installation and a broker.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use yasmin_segment::Broker;
use yasmin_tests::installed::install;
use yasmin_tests::process::{Process, eventually};
use yasmin_tests::segment::Host;

/// A program as a user's shell starts it: cargo's LD_LIBRARY_PATH would find the library where it
/// is built, and not the one that is installed.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

pub struct Lab {
    pub host: Host,
    prefix: PathBuf,
}

impl Lab {
    pub fn new() -> Self {
        // One at a time: make writes to one place of the repository's.
        static LOCK: Mutex<()> = Mutex::new(());
        let _one = LOCK.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let host = Host::new(&["--no-bpf"]);
        let prefix = host.folder.path().join("prefix");
        install(&prefix);
        Self { host, prefix }
    }

    pub fn source(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shmem").join(name)
    }

    pub fn tool(&self, name: &str) -> PathBuf {
        self.prefix.join("bin").join(name)
    }

    pub fn program(&self, name: &str) -> PathBuf {
        self.host.folder.path().join(name).with_extension("run")
    }

    #[track_caller]
    pub fn compile(&self, name: &str, options: &[&str]) {
        let mut command = match name.ends_with(".cc") {
            true => command(self.tool("oshc++")),
            false => command(self.tool("oshcc")),
        };
        if !name.ends_with(".cc") {
            command.arg("-std=gnu11");
        }
        let output = command
            .args(["-Wall", "-Wextra", "-Werror", "-Wno-type-limits", "-pthread", "-o"])
            .args([self.program(name), Self::source(name)])
            .args(options)
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts it by oshrun.
    #[track_caller]
    pub fn run(
        &self,
        count: u16,
        name: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Process {
        let mut command = command(self.tool("oshrun"));
        command
            .args(["-n", &count.to_string()])
            .arg(self.program(name))
            .args(arguments)
            .env("YASMIN_SOCKET", self.host.socket())
            .envs(environment.iter().copied());
        Process::start("oshrun", &mut command, &self.host.registry)
    }

    /// No segment of a job is there any more.
    pub fn nothing_left(&self) {
        let broker = Broker::at(self.host.socket());
        eventually(
            "no segments",
            || broker.list().unwrap().is_empty().then_some(()),
            || format!("{:?}", broker.list()),
        );
    }
}
