//! Where it is kept what is to be put back.

use std::path::PathBuf;

use super::cli;

/// Root's is the machine's; anybody else can move only their own.
pub fn path(options: &cli::Journal) -> PathBuf {
    if let Some(path) = &options.journal {
        return path.clone();
    }
    if rustix::process::geteuid().is_root() {
        return "/run/yasmin/place.journal".into();
    }
    let folder = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let uid = rustix::process::getuid().as_raw();
    let folder = folder.unwrap_or_else(|| format!("/tmp/yasmin-{uid}").into());
    folder.join("yasmin/place.journal")
}
