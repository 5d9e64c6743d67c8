//! Where the broker's socket is.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use yasmin_control::{SOCKET_NAME, SYSTEM_DIR};

/// A folder that anybody could have made before us.
#[derive(Debug)]
pub struct Foreign {
    pub folder: PathBuf,
    pub owner: u32,
}

impl std::fmt::Display for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { folder, owner } = self;
        write!(f, "{} belongs to user {owner}; set XDG_RUNTIME_DIR or --socket", folder.display())
    }
}

impl std::error::Error for Foreign {}

/// The socket that was asked for, else the system's for root and for everybody once it is
/// there, else one of the user's own.
///
/// # Errors
/// The folder of the user's own is another's.
pub fn resolve(asked: Option<&Path>) -> Result<PathBuf, Foreign> {
    if let Some(path) = asked {
        return Ok(std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    }
    let system = Path::new(SYSTEM_DIR).join(SOCKET_NAME);
    let uid = nix::unistd::geteuid();
    if uid.is_root() || is_socket(&system) {
        return Ok(system);
    }
    let folder = match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if Path::new(&folder).is_absolute() => Path::new(&folder).join("yasmin"),
        _ => PathBuf::from(format!("/tmp/yasmin-{}", uid.as_raw())),
    };
    match folder.symlink_metadata() {
        Ok(meta) if meta.uid() != uid.as_raw() => Err(Foreign { folder, owner: meta.uid() }),
        _ => Ok(folder.join(SOCKET_NAME)),
    }
}

fn is_socket(path: &Path) -> bool {
    path.metadata().is_ok_and(|meta| meta.file_type().is_socket())
}
