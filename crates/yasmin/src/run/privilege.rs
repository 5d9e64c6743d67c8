//! Whether the kernel would raise a program's privileges at exec: the loader then ignores
//! LD_PRELOAD (ld.so(8), secure-execution mode).

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::StatVfsMountFlags;
use rustix::process::{getgid, getuid};
use yasmin_image::{Gain, Rights};

/// Which privilege the program gains for this user, if any.
pub fn gained(path: &Path) -> Option<&'static str> {
    let meta = path.metadata().ok()?;
    let rights = Rights {
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        has_capabilities: has_file_capabilities(path),
    };
    let gain = match yasmin_image::gained(&rights, getuid().as_raw(), getgid().as_raw())? {
        Gain::SetUid => "setuid",
        Gain::SetGid => "setgid",
        Gain::Capabilities => "has file capabilities",
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
