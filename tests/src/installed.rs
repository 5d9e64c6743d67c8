//! Programs that tests run, and may do without.

use std::path::PathBuf;

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
