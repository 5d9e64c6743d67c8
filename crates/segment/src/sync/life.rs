//! How a waiter learns that a member is dead.
//!
//! [`Liveness`] asks about a slot. Within one kernel the answer is a file lock ([`FileLife`]): a
//! member holds a write lock on one byte of the segment's file, the byte of its slot, and the
//! kernel drops it when the member is gone.
//!
//! **What holds the lock.** It is an open file description lock (`F_OFD_SETLK`) of a description
//! that the member opens for this alone, and the only reference to that description is a mapping
//! of one page that forks do not inherit (`MADV_DONTFORK`), without access and without memory.
//! The descriptor is closed at once. So the lock lives exactly as long as the address space:
//!
//! - *kill*: the kernel lets go of the mapping when the last thread has left the address space,
//!   so that no thread of a member that is dead to others still writes;
//! - *exec*: the address space is replaced, the lock goes, and with it what the program held;
//! - *fork*: the child has neither the mapping nor the descriptor and is no member; the parent's
//!   death is seen although the child lives on;
//! - *vfork*: the child uses the parent's memory, and while it does the parent counts as alive;
//! - *threads*: have nothing to do with it;
//! - programs that close all descriptors take nothing away;
//! - PID namespaces and reused process ids play no part: no process id is compared.
//!
//! A fork by another thread within the two calls between open and close gives the child the
//! descriptor; then the member is seen as dead only when that child has ended or called exec.
//!
//! **Why not otherwise.** A robust futex list belongs to libc, one for each thread. The kernel
//! compares the word with the thread id in the holder's own namespace, so a waiter that dies can
//! be taken for an owner of the same number elsewhere; and the list's pointers would lie in the segment,
//! where a hostile member could have another process write anywhere. A list of a keeper
//! thread's own declares the process dead while its other threads still run. POSIX record locks
//! go with any close of that file; an OFD lock on a plain descriptor stays while any forked child
//! has a copy. A pidfd would have to be sent to every other member.
//!
//! **Asking** (`F_OFD_GETLK`, about 1 us) needs a descriptor of the same file with another
//! description. Before and after, the descriptor is compared with the file that it was: a program
//! that closed it and got the number for something else would hear "dead" of everybody.
//! Any member may lock the bytes of others, and so make the dead look alive: it can keep others
//! waiting in its own segment, and has the bytes of the locks for that anyway. Who may only read the
//! segment can take read locks alone, of which asking sees nothing; they keep new members out, and harm none.
//!
//! Members of another guest have no file in common. Of them the broker knows (`guests`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Unknown: it cannot be asked now, and whoever waits goes on waiting.
pub use yasmin_control::uplink::Life;

/// Whether the process that claimed a slot lives.
pub trait Liveness {
    fn probe(&self, slot: usize) -> Life;
}

/// Behind every offset that a segment has bytes at, so that programs' own locks on the file are left
/// alone; and before those where the broker's locks begin, which say who has the segment.
const FIRST_BYTE: i64 = 1 << 61;

fn lock_of(slot: usize, kind: i32) -> libc::flock {
    // SAFETY: plain integers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = FIRST_BYTE + slot as i64;
    lock.l_len = 1;
    lock
}

/// A member's sign of life; dropping it is dying. Not to be dropped in a fork, where the
/// mapping is not there.
#[derive(Debug)]
pub struct FileLife {
    page: *mut libc::c_void,
    len_bytes: usize,
}

// SAFETY: the page is never accessed; unmapping works from any thread.
unsafe impl Send for FileLife {}
// SAFETY: as above; nothing can be done with a shared one.
unsafe impl Sync for FileLife {}

impl FileLife {
    /// Takes the byte of `slot` in the segment's file by `own`, a description of it that nobody
    /// else has or will have, open for writing. None: somebody who lives has it.
    pub fn take(own: File, slot: usize) -> io::Result<Option<Self>> {
        let lock = lock_of(slot, libc::F_WRLCK);
        // SAFETY: the descriptor is open, and `lock` outlives the call.
        if unsafe { libc::fcntl(own.as_raw_fd(), libc::F_OFD_SETLK, &lock) } != 0 {
            let error = io::Error::last_os_error();
            let taken = [libc::EAGAIN, libc::EACCES].map(Some).contains(&error.raw_os_error());
            return if taken { Ok(None) } else { Err(error) };
        }
        // SAFETY: asks for no certain page size.
        let len_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        // SAFETY: a new mapping, which nothing else is told of.
        let page = unsafe {
            let (kind, fd) = (libc::MAP_SHARED, own.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), len_bytes, libc::PROT_NONE, kind, fd, 0)
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let life = Self { page, len_bytes };
        // SAFETY: the mapping is ours.
        if unsafe { libc::madvise(page, len_bytes, libc::MADV_DONTFORK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(life))
    }
}

impl Drop for FileLife {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and this process is the one that made it: in a fork it is not dropped.
        unsafe { libc::munmap(self.page, self.len_bytes) };
    }
}

/// A description of its own for a file that this process may open again: one with the mode and the
/// owner that let it. Needs `/proc`.
pub fn open_again(file: BorrowedFd<'_>) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::OpenOptions::new().read(true).write(true).open(path)
}

/// Asks the segment's file about slots.
#[derive(Debug)]
pub struct FileProbe {
    fd: OwnedFd,
    file: (u64, u64),
}

impl FileProbe {
    /// Keeps a copy of `file`, close-on-exec.
    pub fn new(file: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = file.try_clone_to_owned()?;
        let file = identity(fd.as_raw_fd())?;
        Ok(Self { fd, file })
    }

    fn is_still_the_file(&self) -> bool {
        identity(self.fd.as_raw_fd()).is_ok_and(|file| file == self.file)
    }
}

fn identity(fd: i32) -> io::Result<(u64, u64)> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `stat` is writable for its size.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fstat filled it.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.st_dev, stat.st_ino))
}

impl AsFd for FileProbe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Liveness for FileProbe {
    fn probe(&self, slot: usize) -> Life {
        // What stands in the way of reading is a write lock.
        let mut lock = lock_of(slot, libc::F_RDLCK);
        if !self.is_still_the_file() {
            return Life::Unknown;
        }
        // SAFETY: `lock` is readable and writable for its size; the number may be anything's.
        let result = unsafe { libc::fcntl(self.fd.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
        if result != 0 || !self.is_still_the_file() {
            return Life::Unknown;
        }
        if i32::from(lock.l_type) == libc::F_UNLCK { Life::Dead } else { Life::Alive }
    }
}
