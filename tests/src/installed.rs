//! Programs that tests run, and may do without; and this one, installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::lab::artefact;

/// Where `name` is, or `None`.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let postgresql = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/lib/git-core", "/usr/lib/rabbitmq/bin"].map(PathBuf::from))
        .chain(postgresql.map(|version| version.path().join("bin")))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// The same, after saying that it is not there.
pub fn find_or_say(name: &str) -> Option<PathBuf> {
    let found = find(name);
    if found.is_none() {
        eprintln!("skipped: {name} is not installed");
    }
    found
}

/// `make install` with what `make build` has made.
///
/// # Panics
/// It fails.
#[track_caller]
pub fn install(prefix: &Path) {
    make("install", prefix);
}

/// # Panics
/// As [`install`].
#[track_caller]
pub fn uninstall(prefix: &Path) {
    make("uninstall", prefix);
}

#[track_caller]
fn make(target: &str, prefix: &Path) {
    let release = artefact("yasmind");
    let output = Command::new("make")
        .arg("-s")
        .arg(target)
        .arg(format!("PREFIX={}", prefix.display()))
        .arg(format!("RELEASE={}", release.parent().unwrap_or(Path::new(".")).display()))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output()
        .unwrap_or_else(|error| panic!("make cannot be started: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
