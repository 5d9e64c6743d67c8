//! From a name to the file that would be executed, as a shell finds it.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

/// Exit codes that shells use.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What execvp searches when there is no PATH.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("command not found")]
    NotFound,
    #[error("no such file")]
    NoFile,
    #[error("is a directory")]
    Directory,
    #[error("permission denied")]
    NotExecutable,
}

impl Failure {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotFound | Self::NoFile => NOT_FOUND,
            Self::Directory | Self::NotExecutable => NOT_EXECUTABLE,
        }
    }
}

/// The exit code for an exec that failed.
pub fn exit_code(error: &std::io::Error) -> u8 {
    if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}

/// Finds `name` in PATH, or takes it as it is if it has a slash.
pub fn find(name: &OsStr) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH");
    find_in(name, path.as_deref().unwrap_or(OsStr::new(DEFAULT_PATH)))
}

fn find_in(name: &OsStr, path: &OsStr) -> Result<PathBuf, Failure> {
    if name.is_empty() {
        return Err(Failure::NotFound);
    }
    if name.as_bytes().contains(&b'/') {
        return check(Path::new(name)).map(|()| PathBuf::from(name));
    }
    let mut failure = Failure::NotFound;
    for folder in std::env::split_paths(path) {
        // An empty entry means the current folder.
        let folder = if folder.as_os_str().is_empty() { PathBuf::from(".") } else { folder };
        let candidate = folder.join(name);
        match check(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Failure::NotExecutable) => failure = Failure::NotExecutable,
            Err(_) => {}
        }
    }
    Err(failure)
}

fn check(path: &Path) -> Result<(), Failure> {
    match path.metadata() {
        Ok(meta) if meta.is_dir() => return Err(Failure::Directory),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(Failure::NotExecutable);
        }
        Err(_) => return Err(Failure::NoFile),
    }
    rustix::fs::access(path, Access::EXEC_OK).map_err(|_| Failure::NotExecutable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn path_order_and_failures() {
        let root = tempfile::tempdir().unwrap();
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        fs::create_dir_all(first.join("folder")).unwrap();
        fs::create_dir_all(&second).unwrap();
        let path = std::env::join_paths([&first, &second]).unwrap();
        let find = |name: &str| find_in(OsStr::new(name), &path);

        fs::write(first.join("tool"), "").unwrap();
        assert_eq!(find("tool"), Err(Failure::NotExecutable));
        fs::write(second.join("tool"), "").unwrap();
        fs::set_permissions(second.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(find("tool"), Ok(second.join("tool")));
        assert_eq!(find("folder"), Err(Failure::NotFound));
        assert_eq!(find("absent"), Err(Failure::NotFound));
        assert_eq!(find(""), Err(Failure::NotFound));
        assert_eq!(find("./absent/tool"), Err(Failure::NoFile));
        assert_eq!(find("/"), Err(Failure::Directory));
    }
}
