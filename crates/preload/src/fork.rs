//! What forks do to this process's connections, and its exit.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_void};

use crate::entry::{self, Entry};
use crate::{
    broker, conn, guest, handouts, handover, holders, in_flight, life, lock, process, promote,
    real, set, signals, stacks, table, text,
};

pub fn start() {
    process::start(became_child);
    holders::start();
    register_handlers();
}

fn register_handlers() {
    type Handler = extern "C" fn();
    let register = real::next(b"__register_atfork\0");
    // SAFETY: glibc's __register_atfork and POSIX pthread_atfork have these signatures. The
    // library is never unloaded, so no handle is needed.
    unsafe {
        if !register.is_null() {
            let register: unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int =
                core::mem::transmute(register);
            register(before_fork, after_fork, in_child, core::ptr::null_mut());
            return;
        }
        let register = real::next(b"pthread_atfork\0");
        if !register.is_null() {
            let register: unsafe extern "C" fn(Handler, Handler, Handler) -> c_int =
                core::mem::transmute(register);
            register(before_fork, after_fork, in_child);
        }
    }
}

extern "C" fn before_fork() {
    process::refresh();
    if process::is_borrowed() {
        return;
    }
    process::begins_fork();
    text::before_fork();
    for fd in 0..table::end() {
        // Another thread may be attaching a channel to it: then it is a connection.
        if matches!(entry::get(fd), Entry::Candidate(_)) && life::counts_once_more(fd).is_some() {
            continue;
        }
        match entry::get(fd) {
            Entry::Conn(conn) => {
                handover::before_fork(conn, fd);
                // Another thread may close it.
                let Some(_pin) = conn.pin(fd) else { continue };
                conn.share_between_steps(fd);
                if set::numbers::watches(fd) {
                    holders::watches_rx(&conn.side().rx);
                }
                if conn.fd() == fd {
                    conn.one_more_holds();
                }
            }
            Entry::Set(set) => set.before_fork(),
            // The child may use it before it is connected here.
            Entry::Fresh => table::clear(fd),
            Entry::Guest(_) => table::share_guest(fd),
            _ => {}
        }
    }
    // In the order in which a message that brings a channel takes them.
    broker::before_fork();
    handouts::before_fork();
}

/// A fork by a call that runs no handlers.
pub fn forking(kernel: impl FnOnce() -> isize) -> isize {
    before_fork();
    let ret = kernel();
    if ret == 0 {
        became_child();
    } else {
        after_fork();
    }
    ret
}

type Run = Option<extern "C" fn(*mut c_void) -> c_int>;

/// libc's clone: with the memory of the caller the child is lent everything, without it this is a fork.
///
/// # Safety
/// As for libc's clone. It reads the last three where no flag asks for them, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    run: Run,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent: *mut c_int,
    block: *mut c_void,
    child: *mut c_int,
) -> c_int {
    const CLONE_VM: c_int = 0x100;
    if flags & CLONE_VM != 0 || run.is_none() || stack.is_null() {
        handover::before_clone(flags);
        // SAFETY: the program's own arguments.
        return unsafe { real::clone(run, stack, flags, argument, parent, block, child) };
    }
    handover::before_unshare(flags);
    // At the same place in the child's copy of this memory.
    let mut begins = (run, argument);
    let at = (&raw mut begins).cast();
    // SAFETY: as above.
    let kernel = || unsafe { real::clone(Some(begin), stack, flags, at, parent, block, child) };
    forking(|| kernel() as isize) as c_int
}

/// The child of a clone without its parent's memory.
extern "C" fn begin(at: *mut c_void) -> c_int {
    became_child();
    // SAFETY: what `clone` left there.
    let (run, argument) = unsafe { at.cast::<(Run, *mut c_void)>().read() };
    run.map_or(0, |run| run(argument))
}

extern "C" fn after_fork() {
    // As before: of what it borrows nothing was taken.
    if process::is_borrowed() {
        return;
    }
    handouts::after_fork();
    broker::after_fork();
    text::after_fork();
    process::ends_fork();
}

extern "C" fn in_child() {
    became_child();
}

#[cold]
fn became_child() {
    if !process::turns_child() {
        return;
    }
    lock::forget_thread();
    // By a call that runs no handlers: then nobody has counted this process yet.
    let is_uncounted = !process::forgets_forks();
    conn::POOL.reset_lock();
    set::forget_in_child();
    signals::reset_lock();
    stacks::forked();
    broker::forget_in_child();
    promote::reset();
    table::ENTRIES.reset();
    handouts::forget();
    in_flight::forget_others();
    text::forked();
    for fd in 0..table::end() {
        match entry::get(fd) {
            // The thread that was about to close it is not here.
            Entry::Leaving => table::clear(fd),
            Entry::Candidate(_) => {
                table::unlock(fd);
                // Calls in flight were other threads', which are not here.
                table::change(fd, |candidate| candidate.alone().with_pending(false));
            }
            Entry::Conn(conn) => {
                conn.share();
                conn.reset_locks();
                if is_uncounted && conn.fd() == fd {
                    conn.one_more_holds();
                }
            }
            Entry::Set(set) => set.inherited(),
            Entry::Fresh => table::clear(fd),
            Entry::Guest(_) => table::share_guest(fd),
            _ => {}
        }
    }
    table::ghosts().filter_map(conn::at).for_each(conn::Conn::reset_locks);
}

/// The program exits.
pub extern "C" fn exits() {
    process::refresh();
    if process::is_borrowed() {
        return;
    }
    for fd in 0..table::end() {
        match entry::get(fd) {
            Entry::Conn(conn) => conn.exits(fd),
            Entry::Candidate(candidate) => holders::drop_slot(candidate.slot()),
            Entry::Guest(behind) if !table::is_guest_shared(fd) => guest::end_unread(fd, behind),
            _ => {}
        }
    }
    set::exits();
}
