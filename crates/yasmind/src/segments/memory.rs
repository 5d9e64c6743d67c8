//! A segment's memory: a memfd, opened anew for each process that gets it, and who has it.
//!
//! The memfd is the broker's own file with mode 0600. So a process that was given a descriptor
//! which is open for reading cannot open it for writing (/proc/self/fd asks for the file's
//! permissions), and the kernel lets nobody map or mprotect it for writing. Root and whoever is
//! the broker's own user can do so, and could do anything.

use super::Holder;
use crate::cpu_time::cpu_time;
use crate::sys::{lock, page::Pages};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, fstat,
    ftruncate, memfd_create, open,
};
use rustix::io::{self, Errno};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use yasmin_control::segment::{Name, Place, Rights, header};

/// Nobody changes the size, or the seals.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Makes the memory, with its header in it.
pub fn make(name: &Name, place: &Place) -> io::Result<OwnedFd> {
    let memfd = create(&format!("yasmin-segment:{name}"), place.kind.is_huge)?;
    fchmod(&memfd, Mode::RUSR | Mode::WUSR)?;
    ftruncate(&memfd, place.mapped_bytes())?;
    fcntl_add_seals(&memfd, SEALS)?;
    // Huge pages are set aside when they are mapped, for good: so nobody dies of a fault later.
    let len_bytes = if place.kind.is_huge { place.mapped_bytes() } else { 4096 };
    let pages = Pages::map(&memfd, len_bytes as usize)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
    pages.write(&header(name, place));
    Ok(memfd)
}

fn create(name: &str, is_huge: bool) -> io::Result<OwnedFd> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if is_huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    // As for channels: never executable where the kernel can promise it.
    match memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => memfd_create(name, flags),
        result => result,
    }
}

/// Whether this is the memory of such a segment.
pub fn is_of(memfd: &OwnedFd, place: &Place) -> bool {
    fcntl_get_seals(memfd).is_ok_and(|seals| seals.contains(SEALS))
        && fstat(memfd).is_ok_and(|stat| stat.st_size == place.mapped_bytes() as i64)
}

/// Opens it anew: a description of this process's own, with these rights and no more.
pub fn open_for(memfd: &OwnedFd, holder: &Holder) -> io::Result<OwnedFd> {
    let mode = match holder.rights {
        Rights::Write => OFlags::RDWR,
        Rights::Read => OFlags::RDONLY,
        Rights::None => return Err(Errno::ACCESS),
    };
    let path = format!("/proc/self/fd/{}", memfd.as_raw_fd());
    let fd = open(path, mode | OFlags::CLOEXEC, Mode::empty())?;
    let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
    // Where another holder locks what is not his, this one is merely not shown.
    let _ = lock::set(&fd, holder.encode(serial));
    Ok(fd)
}

/// One process may have so many that are told apart.
const SERIALS: u64 = 128;

/// Of who gets a segment next. Counted, not looked for: each question costs as much as there are locks.
static SERIAL: AtomicU64 = AtomicU64::new(0);

/// Where the locks of holders begin: beyond what any file has.
const FIRST: i64 = 1 << 62;

impl Holder {
    /// The byte that is locked for it. The kernel keeps it: it says who has the segment, whatever
    /// happens to the broker, for as long as the process, or one that it forked, has it mapped.
    ///
    /// ```text
    /// 62: 1   61: may write   60..29 user   28..7 process   6..0 serial
    /// ```
    fn encode(&self, serial: u64) -> i64 {
        let pid = u64::from(self.pid) & 0x3f_ffff;
        let is_writer = u64::from(self.rights == Rights::Write);
        let word = is_writer << 61 | u64::from(self.uid) << 29 | pid << 7 | (serial % SERIALS);
        FIRST | word as i64
    }

    fn decode(at: i64) -> Self {
        let word = at as u64;
        let rights = if word >> 61 & 1 == 1 { Rights::Write } else { Rights::Read };
        Self { pid: (word >> 7 & 0x3f_ffff) as u32, uid: (word >> 29) as u32, rights }
    }
}

/// Whether a process has it, mapped or open.
pub fn is_held(memfd: &OwnedFd) -> bool {
    matches!(lock::any(memfd, 0, 0), Ok(Some(_)))
}

/// Up to `most` who have it, as many as are found in so much CPU time, and whether there are more.
pub fn holders(memfd: impl AsFd, most: usize, within: Duration) -> (Vec<Holder>, bool) {
    let mut found = Vec::new();
    let mut ranges = vec![(FIRST, i64::MAX)];
    let until = cpu_time().saturating_add(within);
    // The kernel tells of any one in a range: the rest is on both sides of it.
    for _ in 0..3 * most {
        let Some((from, to)) = ranges.pop() else { return (found, false) };
        if cpu_time() > until {
            return (found, true);
        }
        if from >= to {
            continue;
        }
        let Ok(Some((start, len))) = lock::any(&memfd, from, to - from) else { continue };
        let end = if len == 0 { i64::MAX } else { start.saturating_add(len) };
        if len == 1 && start >= FIRST {
            if found.len() == most {
                return (found, true);
            }
            found.push(Holder::decode(start));
        }
        ranges.push((end, to));
        ranges.push((from, start));
    }
    (found, !ranges.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_are_told_by_the_kernel() {
        let place = Place::new((1 << 45) + 4096, 5000, Default::default()).unwrap();
        let memfd = make(&Name::new("held").unwrap(), &place).unwrap();
        assert!(is_of(&memfd, &place) && !is_held(&memfd));
        let holder = |pid, uid, rights| Holder { pid, uid, rights };
        let wanted = [
            holder(1, 0, Rights::Read),
            holder(0x3f_ffff, u32::MAX, Rights::Write),
            holder(77, 1000, Rights::Write),
            holder(77, 1000, Rights::Write),
        ];
        let opened: Vec<OwnedFd> =
            wanted.iter().map(|holder| open_for(&memfd, holder).unwrap()).collect();
        let holders = |most| holders(&memfd, most, Duration::MAX);
        let (mut found, more) = holders(10);
        assert!(!more);
        let key = |holder: &Holder| (holder.pid, holder.uid);
        found.sort_by_key(key);
        let mut sorted = wanted.to_vec();
        sorted.sort_by_key(key);
        assert_eq!(found, sorted);
        assert_eq!((holders(2).0.len(), holders(2).1), (2, true));
        drop(opened);
        assert!(!is_held(&memfd));
        assert_eq!(holders(10), (Vec::new(), false));
    }
}
