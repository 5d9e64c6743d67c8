//! A channel's memory is sealed once both ends have mapped it, and not before.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::fs::{
    FallocateFlags, FlockOperation, Mode, OFlags, SealFlags, fallocate, fcntl_add_seals,
    fcntl_lock, open,
};
use rustix::io::{Errno, pwrite};
use yasmin_channel::region::{Filling, Mapping, Region};
use yasmin_channel::{memfd, sealing};

const LEN_BYTES: usize = 4 * 4096;

/// The memory, as each end gets it: two descriptions.
fn handed_out() -> [OwnedFd; 2] {
    let name = CString::new("channel").unwrap();
    let region = memfd::create_to_seal(&name, LEN_BYTES).unwrap();
    // SAFETY: made just now.
    let first = unsafe { OwnedFd::from_raw_fd(region.fd) };
    let path = format!("/proc/self/fd/{}", region.fd);
    [first, open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap()]
}

fn map(fd: &OwnedFd) -> Result<Mapping, yasmin_channel::Errno> {
    Region::first(fd.as_raw_fd(), LEN_BYTES).map(Filling::Usual)
}

fn arrive(fd: &OwnedFd, end: usize) -> Result<bool, yasmin_channel::Errno> {
    sealing::arrive(fd.as_raw_fd(), end)
}

fn punch(fd: &OwnedFd) -> Result<(), Errno> {
    fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096)
}

#[test]
fn the_second_end_seals_whichever_it_is() {
    for order in [[0, 1], [1, 0]] {
        let fds = handed_out();
        let first = map(&fds[order[0]]).unwrap();
        assert_eq!(arrive(&fds[order[0]], order[0]), Ok(false));
        assert_eq!(sealing::is_sealed(fds[order[0]].as_raw_fd()), Ok(false));
        punch(&fds[0]).unwrap();
        let second = map(&fds[order[1]]).unwrap();
        assert_eq!(arrive(&fds[order[1]], order[1]), Ok(true));
        for fd in &fds {
            assert_eq!(sealing::is_sealed(fd.as_raw_fd()), Ok(true));
            assert_eq!(punch(fd), Err(Errno::PERM));
            assert_eq!(pwrite(fd, b"x", 0), Err(Errno::PERM));
            assert!(map(fd).is_err());
        }
        // SAFETY: mapped, and used by this thread alone.
        unsafe {
            first.as_ptr().write_volatile(7);
            assert_eq!(second.as_ptr().read_volatile(), 7);
        }
    }
}

#[test]
fn both_may_find_the_other_at_once() {
    for _ in 0..200 {
        let fds = handed_out();
        let both = std::thread::scope(|scope| {
            [0, 1]
                .map(|end| {
                    let fd = &fds[end];
                    scope.spawn(move || (map(fd), arrive(fd, end)))
                })
                .map(|thread| thread.join().unwrap())
        });
        // None was too late to map it, since neither seals before the other has.
        assert!(both.iter().all(|(mapped, _)| mapped.is_ok()));
        assert!(both.iter().any(|(_, sealed)| *sealed == Ok(true)));
        assert!(fds.iter().all(|fd| sealing::is_sealed(fd.as_raw_fd()) == Ok(true)));
    }
}

#[test]
fn who_seals_otherwise_or_takes_the_others_lock_is_found_out() {
    let fds = handed_out();
    let _mapped = map(&fds[0]).unwrap();
    assert_eq!(arrive(&fds[0], 0), Ok(false));
    fcntl_add_seals(&fds[1], SealFlags::SEAL).unwrap();
    assert_eq!(sealing::is_sealed(fds[0].as_raw_fd()), Err(yasmin_channel::Errno::EPERM));

    let fds = handed_out();
    // The whole file.
    let all = FlockOperation::NonBlockingLockExclusive;
    fcntl_lock(&fds[1], all).unwrap();
    let _mapped = map(&fds[0]).unwrap();
    assert_eq!(arrive(&fds[0], 0), Err(yasmin_channel::Errno::EAGAIN));
}
