//! Children that borrow their parent's memory, by vfork and posix_spawn, and use the parent's
//! numbers for something else; and programs that inherit them. The parent's descriptors stay what they are.

use std::io::{Error, Result};
use std::mem::zeroed;
use std::net::{Ipv4Addr, SocketAddr};
use std::ptr::{null, null_mut};

use libc::{c_char, c_int};

use super::{Fd, check_int, close, wait_child};

/// What the child does with its parent's number `fd`; its exit status, `None` if it is unknown.
pub fn child_uses(fd: Fd, how: &str) -> Result<Option<c_int>> {
    match how {
        "spawndup2" | "spawnclose" | "spawnopen" => spawn(fd, how).map(Some),
        "dup2" | "dup3" | "close" | "closesocket" | "closeaccept" | "closeset" | "closerange" => {
            forked(fd, how).map(Some)
        }
        "system" | "popen" | "forkexec" => inherited(fd, how).map(Some),
        _ => Ok(None),
    }
}

/// A program inherits it, and does nothing with it.
fn inherited(fd: Fd, how: &str) -> Result<c_int> {
    let closes = super::closes_on_exec(fd)?;
    super::set_close_on_exec(fd, false)?;
    let command = c"exit 3".as_ptr();
    // SAFETY: C strings; the stream is closed once.
    let status = unsafe {
        match how {
            "system" => check_int(libc::system(command)).map(|status| libc::WEXITSTATUS(status)),
            "popen" => {
                let output = libc::popen(command, c"r".as_ptr());
                if output.is_null() {
                    Err(Error::last_os_error())
                } else {
                    Ok(libc::WEXITSTATUS(libc::pclose(output)))
                }
            }
            _ => becomes(command),
        }
    };
    super::set_close_on_exec(fd, closes)?;
    status
}

/// A child that has a memory of its own becomes the shell. Its exit status.
fn becomes(command: *const c_char) -> Result<c_int> {
    let shell = c"/bin/sh".as_ptr();
    // SAFETY: C strings that outlive the calls; the child only becomes the shell, or ends.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::execl(shell, shell, c"-c".as_ptr(), command, null::<c_char>());
            libc::_exit(127);
        }
        check_int(child)?
    };
    wait_child(child)
}

fn forked(fd: Fd, how: &str) -> Result<c_int> {
    unsafe extern "C" {
        fn vfork() -> libc::pid_t;
    }
    // A connection that waits to be accepted.
    let listener = super::socket(libc::AF_INET, libc::SOCK_CLOEXEC)?;
    super::bind(listener, SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0))?;
    super::listen(listener, 1)?;
    // The library is not to wait for its other end, which nobody may accept.
    let caller = super::socket(libc::AF_INET, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK)?;
    match super::connect(caller, super::getsockname(listener)?) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => {}
    }
    // SAFETY: the child makes system calls, changes no variable of ours, and ends.
    let child = unsafe {
        let child = vfork();
        if child == 0 {
            let done = match how {
                "dup2" => libc::dup2(2, fd),
                "dup3" => libc::dup3(listener, fd, libc::O_CLOEXEC),
                "close" => libc::close(fd),
                "closesocket" => {
                    libc::close(fd) | libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0)
                }
                "closeaccept" => libc::close(fd) | libc::accept(listener, null_mut(), null_mut()),
                "closeset" => libc::close(fd) | libc::epoll_create1(0),
                _ => libc::close_range(fd.cast_unsigned(), fd.cast_unsigned(), 0),
            };
            libc::_exit(c_int::from(done < 0));
        }
        check_int(child)?
    };
    let status = wait_child(child);
    close(listener)?;
    close(caller)?;
    status
}

fn spawn(fd: Fd, how: &str) -> Result<c_int> {
    unsafe extern "C" {
        static environ: *const *mut c_char;
    }
    let program = c"/bin/true".as_ptr();
    let arguments = [program.cast_mut(), null_mut()];
    let mut child = 0;
    // SAFETY: C strings and arrays that end with null; the actions are destroyed.
    let errno = unsafe {
        let mut actions: libc::posix_spawn_file_actions_t = zeroed();
        libc::posix_spawn_file_actions_init(&raw mut actions);
        match how {
            "spawndup2" => libc::posix_spawn_file_actions_adddup2(&raw mut actions, 2, fd),
            "spawnclose" => libc::posix_spawn_file_actions_addclose(&raw mut actions, fd),
            _ => {
                let path = c"/dev/null".as_ptr();
                libc::posix_spawn_file_actions_addopen(&raw mut actions, fd, path, 0, 0)
            }
        };
        let at = arguments.as_ptr();
        let errno =
            libc::posix_spawn(&raw mut child, program, &raw const actions, null(), at, environ);
        libc::posix_spawn_file_actions_destroy(&raw mut actions);
        errno
    };
    if errno != 0 {
        return Err(Error::from_raw_os_error(errno));
    }
    wait_child(child)
}
