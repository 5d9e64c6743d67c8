//! Whether the kernel would raise a program's privileges at exec: the loader then ignores
//! LD_PRELOAD (ld.so(8), secure-execution mode).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::process::{getgid, getuid};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXEC: u32 = 0o0010;

/// Which privilege the program gains for this user, if any.
pub fn gained(path: &Path) -> Option<&'static str> {
    let meta = path.metadata().ok()?;
    let (uid, gid) = (getuid(), getgid());
    let gain = if meta.mode() & SET_UID != 0 && meta.uid() != uid.as_raw() {
        "setuid"
    } else if meta.mode() & (SET_GID | GROUP_EXEC) == SET_GID | GROUP_EXEC
        && meta.gid() != gid.as_raw()
    {
        "setgid"
    } else if !uid.is_root() && has_file_capabilities(path) {
        "has file capabilities"
    } else {
        return None;
    };
    (!is_ignored(path)).then_some(gain)
}

fn has_file_capabilities(path: &Path) -> bool {
    let mut value = [0u8; 64];
    rustix::fs::getxattr(path, "security.capability", &mut value[..]).is_ok_and(|len| len > 0)
}

/// Such bits do nothing on a nosuid mount or in a process that gave up new privileges.
fn is_ignored(path: &Path) -> bool {
    rustix::thread::no_new_privs().unwrap_or(false)
        || rustix::fs::statvfs(path).is_ok_and(|fs| fs.f_flag.contains(StatVfsMountFlags::NOSUID))
}
