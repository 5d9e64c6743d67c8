//! The library and LD_PRELOAD.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::install;

pub const VARIABLE: &str = "LD_PRELOAD";

#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    #[error("{0}")]
    Missing(#[from] install::Missing),
    #[error("no permission to read {}", .0.display())]
    Unreadable(PathBuf),
    #[error("the loader cannot preload {}: the path has a space or colon", .0.display())]
    Separator(PathBuf),
}

/// The library, if the dynamic loader will be able to load it.
pub fn library() -> Result<PathBuf, Unusable> {
    let path = install::find(install::LIBRARY)?;
    if path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        return Err(Unusable::Separator(path));
    }
    match rustix::fs::access(&path, Access::READ_OK) {
        Ok(()) => Ok(path),
        Err(_) => Err(Unusable::Unreadable(path)),
    }
}

/// `library` before whatever is preloaded already, and only once.
pub fn prepended(library: &Path, existing: Option<&OsStr>) -> OsString {
    let mut value = OsString::from(library);
    let separators = |byte: &u8| *byte == b':' || *byte == b' ';
    for entry in existing.unwrap_or_default().as_bytes().split(separators) {
        if !entry.is_empty() && entry != library.as_os_str().as_bytes() {
            value.push(":");
            value.push(OsStr::from_bytes(entry));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_is_there() {
        let with = |existing| prepended(Path::new("/l/libyasmin.so"), existing);
        assert_eq!(with(None), "/l/libyasmin.so");
        assert_eq!(with(Some(OsStr::new(""))), "/l/libyasmin.so");
        assert_eq!(with(Some(OsStr::new("/a.so b.so"))), "/l/libyasmin.so:/a.so:b.so");
        assert_eq!(with(Some(OsStr::new("/a.so:/l/libyasmin.so"))), "/l/libyasmin.so:/a.so");
    }
}
