//! A guest as somebody tells of it who knows which guests there are: libvirt, or Xen's store.

use super::config::Monitor;
use super::stream::Stream;
use std::os::unix::net::UnixStream;

/// A guest as it is now.
pub struct Domain {
    pub name: String,
    /// Who tells of it.
    pub monitor: Monitor,
    /// Places for memory that are free, by their ids.
    pub slots: Vec<String>,
    /// It has begun to run.
    pub begun: Option<Begun>,
}

pub struct Begun {
    /// Its QEMU's process; 0: not known, or it has none.
    pub qemu_pid: u32,
    /// To the guest's broker.
    pub port: Stream,
    /// Speaks QMP, and closes when the guest ends.
    pub monitor: UnixStream,
}
