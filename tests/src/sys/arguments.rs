//! Calls with lengths and addresses that no call can use.

use std::io::{Error, Result};
use std::ptr::{null, null_mut, without_provenance_mut};

use libc::{c_int, c_void};

use super::{Fd, check, close};

/// An address that no process has.
fn nowhere<T>() -> *mut T {
    without_provenance_mut(8)
}

/// One call on `fd` by name; `None` where there is none.
pub fn call(fd: Fd, form: &str) -> Result<Option<usize>> {
    let minus = usize::MAX;
    let mut room = vec![0u8; 1 << 20];
    let (at, quiet) = (room.as_mut_ptr().cast::<c_void>(), libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
    let peeks = quiet | libc::MSG_PEEK;
    let bad = nowhere::<c_void>();
    // SAFETY: what is bad here is for the kernel to refuse, and for whoever stands before it;
    // peeks into `room` find less than it holds.
    let result = unsafe {
        match form {
            "recvminus" => libc::recv(fd, at, minus, peeks),
            "recvfromminus" => libc::recvfrom(fd, at, minus, peeks, null_mut(), null_mut()),
            "readminus" => libc::read(fd, at, minus),
            "writeminus" => libc::write(fd, at, minus),
            "recvnowhere" => libc::recv(fd, bad, 100, peeks),
            "sendnowhere" => libc::send(fd, bad, 100, quiet),
            "recvfromname" => libc::recvfrom(fd, at, 10, peeks, nowhere(), nowhere()),
            "connectnowhere" => libc::connect(fd, nowhere(), 16) as isize,
            "connectnull" => libc::connect(fd, null(), 16) as isize,
            "connectminus" => libc::connect(fd, at.cast(), u32::MAX) as isize,
            "selectnowhere" => {
                libc::select(fd + 1, nowhere(), null_mut(), null_mut(), room.as_mut_ptr().cast())
                    as isize
            }
            "selectwrites" => {
                libc::select(fd + 1, null_mut(), nowhere(), null_mut(), room.as_mut_ptr().cast())
                    as isize
            }
            // By number: glibc's function reads the time itself.
            "selecttime" => {
                libc::syscall(libc::SYS_pselect6, fd + 1, at, 0_usize, 0_usize, bad, 0_usize)
                    as isize
            }
            "selectminus" => {
                libc::select(-1, at.cast(), null_mut(), null_mut(), null_mut()) as isize
            }
            "pollnowhere" => libc::poll(nowhere(), 1, 0) as isize,
            "pollmany" => libc::poll(at.cast(), minus as _, 0) as isize,
            "ppollmask" => libc::ppoll(at.cast(), 0, room.as_ptr().cast(), nowhere()) as isize,
            "epwaitnowhere" | "epwaitnone" | "epwaitminus" | "epwaitmany" | "epctlnowhere" => {
                return with_set(fd, form).map(Some);
            }
            "getoption" => {
                let mut len = 4;
                option(libc::getsockopt(fd, 1, libc::SO_TYPE, bad, &raw mut len))
            }
            "getoptionlen" => option(libc::getsockopt(fd, 1, libc::SO_TYPE, at, nowhere())),
            "getoptionminus" => {
                let mut len = u32::MAX;
                option(libc::getsockopt(fd, 6, libc::TCP_NODELAY, at, &raw mut len))
            }
            "setoption" => option(libc::setsockopt(fd, 6, libc::TCP_NODELAY, bad, 4)),
            "setoptionminus" => option(libc::setsockopt(fd, 6, libc::TCP_NODELAY, at, u32::MAX)),
            "getname" => option(libc::getsockname(fd, nowhere(), nowhere())),
            "unread" => option(libc::ioctl(fd, libc::FIONREAD as libc::Ioctl, bad)),
            _ => return Ok(None),
        }
    };
    check(result).map(Some)
}

const fn option(result: c_int) -> isize {
    result as isize
}

/// epoll's calls, on a set in which `fd` is ready if it can be written.
fn with_set(fd: Fd, form: &str) -> Result<usize> {
    let set = super::epoll_create()?;
    let _ = super::epoll_ctl(set, libc::EPOLL_CTL_ADD, fd, libc::EPOLLOUT as u32, 0);
    let mut room = [libc::epoll_event { events: 0, u64: 0 }; 4];
    let at = room.as_mut_ptr();
    // SAFETY: as in `call`; the wait that is asked for more than there is finds one.
    let result = unsafe {
        match form {
            "epwaitnowhere" => libc::epoll_wait(set, nowhere(), 4, 0),
            "epwaitnone" => libc::epoll_wait(set, at, 0, 0),
            "epwaitminus" => libc::epoll_wait(set, at, -1, 0),
            "epwaitmany" => libc::epoll_wait(set, at, c_int::MAX, 0),
            _ => libc::epoll_ctl(set, libc::EPOLL_CTL_MOD, fd, nowhere()),
        }
    };
    let result = check(result as isize);
    close(set)?;
    result
}

/// The same on a socket that is not connected.
pub fn call_unconnected(form: &str) -> Result<Option<usize>> {
    let fd = super::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    let result = call(fd, form);
    close(fd)?;
    result.map_err(|error| Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
}
