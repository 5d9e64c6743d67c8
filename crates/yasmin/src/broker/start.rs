//! Starting a broker that outlives the program, when none listens.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::client::{Client, Trouble};
use crate::install;

/// A broker that `yasmin run` started leaves after so long without a process.
const IDLE_S: &str = "30";
/// How long a new broker may take until it answers.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(5);

const LOCK_NAME: &str = "start.lock";
const LOG_NAME: &str = "yasmind.log";

#[derive(Debug, thiserror::Error)]
pub enum CannotStart {
    #[error("{0}")]
    Broker(#[from] Trouble),
    #[error("{0}")]
    Missing(#[from] install::Missing),
    #[error("no broker listens, and its folder {folder} cannot be used: {error}")]
    Folder { folder: String, error: std::io::Error },
    #[error("{yasmind} cannot be started: {error}")]
    Spawn { yasmind: String, error: std::io::Error },
    #[error("the broker that was started does not answer ({trouble}); see {log}")]
    Late { trouble: Trouble, log: String },
}

/// Makes sure that a broker of our version listens at `socket`.
pub fn ensure(socket: &Path) -> Result<(), CannotStart> {
    match greet(socket) {
        Err(Trouble::Nobody) => start(socket),
        other => Ok(other?),
    }
}

pub fn greet(socket: &Path) -> Result<(), Trouble> {
    Client::connect(socket)?.hello()
}

fn start(socket: &Path) -> Result<(), CannotStart> {
    let yasmind = install::find(install::BROKER)?;
    let folder = socket.parent().unwrap_or(Path::new("/"));
    let unusable = |error| CannotStart::Folder { folder: folder.display().to_string(), error };
    make_folder(folder).map_err(unusable)?;
    let lock = open_append(&folder.join(LOCK_NAME)).map_err(unusable)?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|errno| unusable(errno.into()))?;
    // Another start may have come first while this one waited for the lock.
    match greet(socket) {
        Err(Trouble::Nobody) => {}
        other => return Ok(other?),
    }
    let failed = |error| CannotStart::Spawn { yasmind: yasmind.display().to_string(), error };
    let done = Command::new("/proc/self/exe")
        .arg("start-broker")
        .args([yasmind.as_path(), socket])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .env_remove("LD_PRELOAD")
        .status()
        .map_err(failed)?;
    if !done.success() {
        return Err(failed(std::io::Error::other(format!("{done}"))));
    }
    let begun = Instant::now();
    loop {
        match greet(socket) {
            Ok(()) => return Ok(()),
            Err(trouble) if begun.elapsed() > PATIENCE => {
                let log = folder.join(LOG_NAME).display().to_string();
                return Err(CannotStart::Late { trouble, log });
            }
            Err(_) => std::thread::sleep(POLL_EVERY),
        }
    }
}

/// The system's folder is for everybody to enter; any other only for its user.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mode = if folder == Path::new(yasmin_control::SYSTEM_DIR) { 0o755 } else { 0o700 };
    DirBuilder::new().recursive(true).mode(mode).create(folder)
}

fn open_append(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Starts `yasmind` in a session of its own and returns at once. Runs in a process between
/// the program-to-be and the broker, so that the program gets no child it does not know.
pub fn detach(yasmind: &Path, socket: &Path) -> anyhow::Result<()> {
    rustix::process::setsid()?;
    let log = open_append(&socket.with_file_name(LOG_NAME))?;
    Command::new(yasmind)
        .arg("--socket")
        .arg(socket)
        .args(["--exit-when-idle", IDLE_S])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .current_dir("/")
        .process_group(0)
        .spawn()?;
    Ok(())
}
