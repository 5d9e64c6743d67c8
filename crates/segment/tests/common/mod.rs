//! A segment in a memfd, and processes that are killed.
#![allow(
    dead_code,
    clippy::undocumented_unsafe_blocks,
    reason = "test processes, one block a call"
)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};

use yasmin_segment::sync::{Attachment, Identity, Slot, Wait};

pub const SLOTS: usize = 64;

/// What lies in the segment: the table, and whatever the test wants.
#[repr(C)]
pub struct Segment<T> {
    pub slots: [Slot; SLOTS],
    pub body: T,
}

pub fn memfd(len_bytes: usize) -> File {
    let fd = unsafe { libc::memfd_create(c"segment".as_ptr(), libc::MFD_CLOEXEC) };
    assert!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
    let file = unsafe { File::from_raw_fd(fd) };
    file.set_len(len_bytes as u64).unwrap();
    file
}

pub fn map(file: &File, len_bytes: usize) -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let (kind, fd) = (libc::MAP_SHARED, file.as_raw_fd());
    let page = unsafe { libc::mmap(std::ptr::null_mut(), len_bytes, rights, kind, fd, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}

/// Zeroed, for good.
pub fn segment<T>() -> (File, &'static Segment<T>) {
    let file = memfd(size_of::<Segment<T>>());
    let at = map(&file, size_of::<Segment<T>>());
    (file, unsafe { &*at.cast() })
}

pub fn attach<T>(file: &File, segment: &'static Segment<T>) -> Attachment<'static> {
    Attachment::new(&segment.slots, file.as_fd(), identity()).unwrap()
}

pub fn identity() -> Identity {
    Identity { domain: 1, process: std::process::id(), epoch: 1 }
}

/// Raised by a child that panics, which may be killed before it has told so otherwise.
pub fn failure() -> &'static std::sync::atomic::AtomicU64 {
    static PAGE: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    let page = *PAGE.get_or_init(|| map(&memfd(4096), 4096) as usize);
    unsafe { &*(page as *const _) }
}

/// A child that runs `act` and leaves without exit handlers; its process id.
pub fn fork(act: impl FnOnce()) -> i32 {
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", std::io::Error::last_os_error());
    if child == 0 {
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        std::panic::set_hook(Box::new(|info| {
            failure().store(1, std::sync::atomic::Ordering::Relaxed);
            eprintln!("{info}");
        }));
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        unsafe { libc::_exit(if result.is_ok() { 0 } else { 101 }) };
    }
    child
}

pub fn kill(child: i32) {
    unsafe { libc::kill(child, libc::SIGKILL) };
}

/// None: it was killed; else its exit status.
pub fn reap(child: i32) -> Option<i32> {
    let mut status = 0;
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status))
}

pub fn soon(ms: u64) -> Wait {
    use yasmin_segment::sync::{Futex, Waiter};
    Wait::Until(Futex::new().now_ns() + ms * 1_000_000)
}

/// A byte from one process to others that wait for it.
pub struct Pipe(i32, i32);

impl Pipe {
    pub fn new() -> Self {
        let mut ends = [0; 2];
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        Self(ends[0], ends[1])
    }

    pub fn tell(&self) {
        assert_eq!(unsafe { libc::write(self.1, [1u8].as_ptr().cast(), 1) }, 1);
    }

    pub fn hear(&self) {
        let mut byte = [0u8];
        assert_eq!(unsafe { libc::read(self.0, byte.as_mut_ptr().cast(), 1) }, 1);
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        unsafe {
            libc::close(self.0);
            libc::close(self.1);
        }
    }
}

/// xorshift: the seed is told, so that a run can be repeated.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

pub fn sleep_us(us: u64) {
    std::thread::sleep(std::time::Duration::from_micros(us));
}
