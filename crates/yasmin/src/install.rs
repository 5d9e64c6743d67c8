//! Where the libraries and the broker are: beside this command, or where `make install` put them.

use std::path::{Path, PathBuf};

pub const LIBRARY: &str = "libyasmin.so";
pub const INJECTOR: &str = "yasmin-inject";
pub const BROKER: &str = "yasmind";
pub const SHMEM: &str = "libyasmin-shmem.so.0";

/// Folders looked in, relative to the folder of this executable.
const PLACES: [&str; 4] = ["", "../lib/yasmin", "../libexec/yasmin", "../lib"];

#[derive(Debug, thiserror::Error)]
pub enum Missing {
    #[error(
        "{name} is neither beside {} nor in ../lib/yasmin, ../libexec/yasmin or ../lib of it",
        .exe.display()
    )]
    Nowhere { name: &'static str, exe: PathBuf },
    #[error("cannot tell where this command is: {0}")]
    NoExecutable(std::io::Error),
}

/// The file called `name` that belongs to this command.
pub fn find(name: &'static str) -> Result<PathBuf, Missing> {
    let exe = std::env::current_exe().map_err(Missing::NoExecutable)?;
    find_beside(&exe, name).ok_or(Missing::Nowhere { name, exe })
}

fn find_beside(exe: &Path, name: &str) -> Option<PathBuf> {
    let folder = exe.parent()?;
    PLACES
        .iter()
        .map(|place| folder.join(place).join(name))
        .find(|path| path.is_file())
        .map(|path| path.canonicalize().unwrap_or(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn beside_comes_before_the_prefix() {
        let prefix = tempfile::tempdir().unwrap();
        let exe = prefix.path().join("bin/yasmin");
        for folder in ["bin", "lib/yasmin"] {
            fs::create_dir_all(prefix.path().join(folder)).unwrap();
        }
        assert_eq!(find_beside(&exe, LIBRARY), None);
        let installed = prefix.path().join("lib/yasmin").join(LIBRARY);
        fs::write(&installed, "").unwrap();
        assert_eq!(find_beside(&exe, LIBRARY), Some(installed.canonicalize().unwrap()));
        let beside = prefix.path().join("bin").join(LIBRARY);
        fs::write(&beside, "").unwrap();
        assert_eq!(find_beside(&exe, LIBRARY), Some(beside.canonicalize().unwrap()));
    }
}
