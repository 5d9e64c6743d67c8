//! Starting a broker that outlives the program, when none listens.
//!
//! Nobody waits for a lock here, which others might hold: of several brokers that are started at
//! once, one gets the socket, and the others go.

use std::fs::{DirBuilder, File};
use std::io::{Error, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, fstat, open, openat};

use super::client::{Client, Trouble};
use crate::install;

/// A broker that `yasmin run` started leaves after so long without a process.
const IDLE_S: &str = "30";
/// How long a new broker may take until it answers.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL_EVERY: Duration = Duration::from_millis(5);

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
    make_folder(folder).and_then(|()| open_folder(folder)).map_err(unusable)?;
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

/// A folder in which nobody but root and this user can put or replace anything: /tmp is for all,
/// and a name in it may be taken before us, or a link.
fn open_folder(folder: &Path) -> std::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = open(folder, flags | OFlags::RDONLY, Mode::empty())?;
    let stat = fstat(&fd)?;
    let is_ours = stat.st_uid == 0 || stat.st_uid == rustix::process::geteuid().as_raw();
    // Where all may write, but not replace what is another's.
    const STICKY: u32 = 0o1000;
    let is_closed = stat.st_mode & 0o002 == 0 || stat.st_mode & STICKY != 0;
    if !is_ours {
        let what = format!("it belongs to user {}", stat.st_uid);
        return Err(Error::new(ErrorKind::PermissionDenied, what));
    }
    if !is_closed {
        return Err(Error::new(ErrorKind::PermissionDenied, "anybody may write there"));
    }
    Ok(fd)
}

/// The log, which is this user's own file.
fn open_log(folder: &Path) -> std::io::Result<File> {
    let folder = open_folder(folder)?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
    let log = openat(&folder, LOG_NAME, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, mode)?;
    let stat = fstat(&log)?;
    let is_file = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
    if !is_file || stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_nlink != 1 {
        return Err(Error::new(ErrorKind::PermissionDenied, "the log there is another's"));
    }
    Ok(log.into())
}

/// Starts `yasmind` in a session of its own and returns at once. Runs in a process between
/// the program-to-be and the broker, so that the program gets no child it does not know.
pub fn detach(yasmind: &Path, socket: &Path) -> anyhow::Result<()> {
    rustix::process::setsid()?;
    let log = open_log(socket.parent().unwrap_or(Path::new("/")))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_folder_of_others_and_a_link_are_not_used() {
        let folder = std::env::temp_dir().join(format!("yasmin-start-{}", std::process::id()));
        let own = folder.join("own");
        make_folder(&own).unwrap();
        open_log(&own).unwrap();
        symlink(&own, folder.join("link")).unwrap();
        assert!(open_folder(&folder.join("link")).is_err());
        let precious = folder.join("precious");
        fs::write(&precious, "").unwrap();
        fs::remove_file(own.join(LOG_NAME)).unwrap();
        symlink(&precious, own.join(LOG_NAME)).unwrap();
        assert!(open_log(&own).is_err());
        fs::set_permissions(&own, Permissions::from_mode(0o777)).unwrap();
        assert!(open_folder(&own).is_err());
        fs::set_permissions(&own, Permissions::from_mode(0o1777)).unwrap();
        open_folder(&own).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&own, Some(65534), None).unwrap();
            assert!(open_folder(&own).is_err());
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
