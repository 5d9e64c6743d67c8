//! The socket that processes connect to: where it is, who may use it, and that no two brokers
//! serve the same path.

use crate::client::Client;
use crate::sys::sockopt;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Connections that the kernel keeps for us while we do something else.
const BACKLOG: i32 = 1024;

/// The right to listen on a path.
pub struct Claim {
    path: PathBuf,
    source: Source,
}

enum Source {
    /// Held while the broker lives; the lock goes with the process, however that ends.
    Lock(OwnedFd),
    /// A service manager listens already (sd_listen_fds(3)). So clients find the manager's
    /// credentials at the other end, root's, and the broker can be somebody else's.
    Inherited(OwnedFd),
}

pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// `None`: the path is the service manager's.
    lock: Option<OwnedFd>,
}

#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error(
        "XDG_RUNTIME_DIR is not set, so there is no default place for the socket; give --socket PATH"
    )]
    NoDefault,
    #[error("another broker already listens on {path}; stop it, or give --socket another path", path = .0.display())]
    Busy(PathBuf),
    #[error("{path} exists and is not a socket; remove it, or give --socket another path", path = .0.display())]
    NotASocket(PathBuf),
    #[error("{what} {path}: {error}", path = .path.display())]
    Io { what: &'static str, path: PathBuf, error: io::Error },
}

/// /run/yasmin/broker.sock for the system's broker, else $XDG_RUNTIME_DIR/yasmin/broker.sock.
pub fn default_path(system: bool) -> Result<PathBuf, ListenError> {
    let directory = if system {
        PathBuf::from(yasmin_control::SYSTEM_DIR)
    } else {
        let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| !dir.is_empty());
        PathBuf::from(runtime.ok_or(ListenError::NoDefault)?).join("yasmin")
    };
    Ok(directory.join(yasmin_control::SOCKET_NAME))
}

fn at(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.to_owned();
    move |error| ListenError::Io { what, path, error }
}

impl Claim {
    /// Claims `path`, whose directory is made if need be. Whoever connects is refused until
    /// `listen`. `inherited`: a service manager listens there already.
    pub fn take(path: &Path, inherited: Option<OwnedFd>) -> Result<Self, ListenError> {
        if let Some(fd) = inherited {
            return Ok(Self { path: path.to_owned(), source: Source::Inherited(fd) });
        }
        if let Some(directory) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(directory)
                .map_err(at("cannot make the directory", directory))?;
        }
        let lock_path = lock_path(path);
        let lock = open(
            &lock_path,
            OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::RUSR | Mode::WUSR,
        )
        .map_err(|error| at("cannot open", &lock_path)(error.into()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(ListenError::Busy(path.to_owned())),
            Err(error) => return Err(at("cannot lock", &lock_path)(error.into())),
        }
        // Ours alone now: a socket that is there was left behind.
        match fs::symlink_metadata(path) {
            Ok(found) => {
                use std::os::unix::fs::FileTypeExt;
                if !found.file_type().is_socket() {
                    return Err(ListenError::NotASocket(path.to_owned()));
                }
                fs::remove_file(path).map_err(at("cannot remove the old socket", path))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(at("cannot look at", path)(error)),
        }
        Ok(Self { path: path.to_owned(), source: Source::Lock(lock) })
    }

    /// Any user may connect to the system's broker, only the user himself to his own.
    pub fn listen(self, system: bool) -> Result<Listener, ListenError> {
        let Self { path, source } = self;
        let lock = match source {
            Source::Lock(lock) => lock,
            Source::Inherited(fd) => {
                refuse_rights(&fd);
                return Ok(Listener { fd, path, lock: None });
            }
        };
        let fd = open_socket(&path).map_err(|error| at("cannot listen on", &path)(error.into()))?;
        let mode = if system { 0o666 } else { 0o600 };
        fs::set_permissions(&path, Permissions::from_mode(mode))
            .map_err(at("cannot set permissions of", &path))?;
        Ok(Listener { fd, path, lock: Some(lock) })
    }
}

/// What is accepted inherits it, from the connect on. Before Linux 6.16 the kernel knows no such
/// thing.
fn refuse_rights(fd: &OwnedFd) {
    let _ = sockopt::set_pass_rights(fd, false);
}

fn open_socket(path: &Path) -> rustix::io::Result<OwnedFd> {
    let fd = socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    refuse_rights(&fd);
    bind(&fd, &SocketAddrUnix::new(path)?)?;
    listen(&fd, BACKLOG)?;
    Ok(fd)
}

impl Listener {
    /// The next process that connected, if one waits.
    pub fn accept(&self) -> rustix::io::Result<Client> {
        let fd = accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        Ok(Client::new(fd))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if self.lock.is_none() {
            return;
        }
        // The lock is still held, so this is our socket and no successor's. The lock file
        // stays: to remove it would let two brokers hold locks on two files of one name.
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}
