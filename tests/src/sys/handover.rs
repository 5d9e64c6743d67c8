//! Descriptors that change hands: copies, exec, spawn, Unix sockets.

use std::ffi::CString;
use std::io::{Error, Result};
use std::mem::{size_of, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::AtomicU64;

use libc::{c_char, c_int};

use super::{Fd, check, check_int, close};

/// Words in memory that has a descriptor, which programs started from here inherit.
pub fn inheritable_words(count: usize) -> Result<(Fd, &'static [AtomicU64])> {
    // SAFETY: the name is a C string.
    let fd = check_int(unsafe { libc::memfd_create(c"positions".as_ptr(), 0) })?;
    // SAFETY: no pointers.
    check_int(unsafe { libc::ftruncate(fd, (count * size_of::<u64>()) as i64) })?;
    Ok((fd, inherited_words(fd, count)?))
}

/// The words of `inheritable_words`, in a program that inherited them.
pub fn inherited_words(fd: Fd, count: usize) -> Result<&'static [AtomicU64]> {
    let len = count * size_of::<u64>();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(null_mut(), len, protection, libc::MAP_SHARED, fd, 0) };
    if at == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    // SAFETY: aligned, of that size, never unmapped, and only ever used as atomics.
    Ok(unsafe { std::slice::from_raw_parts(at.cast(), count) })
}

/// This process gives up its user and its group.
pub fn become_user(id: u32) -> Result<()> {
    // SAFETY: no pointers but a null one for no groups.
    check_int(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: no pointers.
    check_int(unsafe { libc::setresgid(id, id, id) })?;
    // SAFETY: no pointers.
    check_int(unsafe { libc::setresuid(id, id, id) }).map(drop)
}

pub fn set_close_on_exec(fd: Fd, on: bool) -> Result<()> {
    let flags = if on { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: no pointers.
    check_int(unsafe { libc::fcntl(fd, libc::F_SETFD, flags) }).map(drop)
}

pub fn closes_on_exec(fd: Fd) -> Result<bool> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::fcntl(fd, libc::F_GETFD) }).map(|flags| flags & libc::FD_CLOEXEC != 0)
}

pub fn is_nonblocking(fd: Fd) -> Result<bool> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::fcntl(fd, libc::F_GETFL) }).map(|flags| flags & libc::O_NONBLOCK != 0)
}

pub fn dup3(fd: Fd, onto: Fd, flags: c_int) -> Result<Fd> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::dup3(fd, onto, flags) })
}

/// fcntl's F_DUPFD or F_DUPFD_CLOEXEC: the lowest free number from `least` on.
pub fn dup_above(fd: Fd, command: c_int, least: Fd) -> Result<Fd> {
    // SAFETY: no pointers.
    check_int(unsafe { libc::fcntl(fd, command, least) })
}

pub fn close_range(first: Fd, last: Fd) -> Result<()> {
    // SAFETY: no pointers; who owns the numbers is the peers' business.
    check_int(unsafe { libc::close_range(first as u32, last as u32, 0) }).map(drop)
}

/// glibc's closefrom; older ones than 2.34 have none.
pub fn close_from(first: Fd) {
    unsafe extern "C" {
        fn closefrom(first: c_int);
    }
    // SAFETY: no pointers.
    unsafe { closefrom(first) };
}

/// The soft limit on descriptors' numbers.
pub fn limit_descriptors(most: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` outlives the calls.
    unsafe {
        check_int(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit))?;
        limit.rlim_cur = most;
        check_int(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)).map(drop)
    }
}

// ---- other programs ----

/// Program, arguments and environment as exec takes them.
pub struct Image {
    strings: Vec<CString>,
    arguments: usize,
}

impl Image {
    /// `environment`: strings of the form `NAME=value`.
    pub fn new(arguments: &[String], environment: &[String]) -> Result<Self> {
        let strings = arguments.iter().chain(environment);
        let strings = strings.map(|text| CString::new(text.as_str()).map_err(Error::other));
        Ok(Self { strings: strings.collect::<Result<_>>()?, arguments: arguments.len() })
    }

    fn pointers(&self) -> [Vec<*mut c_char>; 2] {
        let (arguments, environment) = self.strings.split_at(self.arguments);
        [arguments, environment].map(|part| {
            part.iter().map(|text| text.as_ptr().cast_mut()).chain([null_mut()]).collect()
        })
    }
}

/// Becomes another program; comes back only with an error.
pub fn exec(image: &Image) -> Error {
    let [arguments, environment] = image.pointers();
    // SAFETY: null-terminated arrays of C strings that live as long as `image`.
    unsafe {
        libc::execve(arguments[0], arguments.as_ptr().cast(), environment.as_ptr().cast());
    }
    Error::last_os_error()
}

pub fn spawn(image: &Image) -> Result<c_int> {
    let [arguments, environment] = image.pointers();
    let mut child = 0;
    // SAFETY: as for `exec`; neither file actions nor attributes.
    let errno = unsafe {
        libc::posix_spawn(
            &raw mut child,
            arguments[0],
            std::ptr::null(),
            std::ptr::null(),
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    };
    if errno == 0 { Ok(child) } else { Err(Error::from_raw_os_error(errno)) }
}

/// vfork, close, exec: as CPython's subprocess starts a program.
pub fn vfork_exec(image: &Image, closes: &[Fd]) -> Result<c_int> {
    unsafe extern "C" {
        fn vfork() -> libc::pid_t;
    }
    let [arguments, environment] = image.pointers();
    // SAFETY: the child closes, becomes another program or ends, and changes no variable.
    unsafe {
        let child = vfork();
        if child == 0 {
            for fd in closes {
                libc::close(*fd);
            }
            libc::execve(arguments[0], arguments.as_ptr().cast(), environment.as_ptr().cast());
            libc::_exit(127);
        }
        check_int(child)
    }
}

/// system(3): the shell's exit status.
pub fn system(command: &str) -> Result<c_int> {
    let command = CString::new(command).map_err(Error::other)?;
    // SAFETY: a C string.
    check_int(unsafe { libc::system(command.as_ptr()) }).map(|status| libc::WEXITSTATUS(status))
}

// ---- Unix sockets ----

pub fn socket_pair() -> Result<(Fd, Fd)> {
    let mut ends = [0; 2];
    // SAFETY: room for two descriptors.
    let ret = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, ends.as_mut_ptr()) };
    check_int(ret)?;
    Ok((ends[0], ends[1]))
}

/// A message with one descriptor and its control data, aligned.
fn with_message<T>(data: &mut [u8], f: impl FnOnce(&mut libc::msghdr, *mut c_int) -> T) -> T {
    let mut piece = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    let mut control = [0u64; 4];
    // SAFETY: all-zero is a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = &raw mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the control buffer has room for a header and one descriptor.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size_of::<c_int>() as u32) as usize;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<c_int>() as u32) as usize;
        let fd = libc::CMSG_DATA(header).cast::<c_int>();
        f(&mut message, fd)
    }
}

/// Sends `fd` over a Unix socket, beside a few bytes.
pub fn give(socket: Fd, fd: Fd, data: &[u8]) -> Result<()> {
    let mut data = data.to_owned();
    with_message(&mut data, |message, at| {
        // SAFETY: `at` is inside the control data, and the message is complete.
        unsafe {
            *at = fd;
            check(libc::sendmsg(socket, &raw const *message, 0)).map(drop)
        }
    })
}

/// Receives what `give` sent.
pub fn take(socket: Fd) -> Result<(Fd, Vec<u8>)> {
    let mut data = vec![0; 256];
    let (len, fd) = with_message(&mut data, |message, at| {
        // SAFETY: the message is complete, and `at` is inside its control data.
        unsafe {
            *at = -1;
            check(libc::recvmsg(socket, &raw mut *message, 0)).map(|len| (len, *at))
        }
    })?;
    data.truncate(len);
    Ok((fd, data))
}

/// Opens /dev/null and says which number it got; it is closed again.
pub fn lowest_free() -> Result<Fd> {
    // SAFETY: a C string.
    let fd = check_int(unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) })?;
    close(fd)?;
    Ok(fd)
}

/// select with sets for more numbers than FD_SETSIZE: whether `fd` is readable, and writable.
pub fn select_wide(fd: Fd, timeout_ms: i64) -> Result<[bool; 2]> {
    const WORDS: usize = 64;
    assert!((0..(WORDS * 64) as Fd).contains(&fd));
    let (word, bit) = (fd as usize / 64, 1u64 << (fd % 64));
    let mut sets = [[0u64; WORDS]; 2];
    sets[0][word] = bit;
    sets[1][word] = bit;
    let [read, write] = &mut sets;
    let mut time = libc::timeval { tv_sec: timeout_ms / 1000, tv_usec: timeout_ms % 1000 * 1000 };
    // SAFETY: both sets hold more numbers than are asked about, and outlive the call.
    check_int(unsafe {
        libc::select(
            fd + 1,
            read.as_mut_ptr().cast(),
            write.as_mut_ptr().cast(),
            null_mut(),
            &raw mut time,
        )
    })?;
    Ok(sets.map(|set| set[word] & bit != 0))
}
