//! Handlers, masks, and the waits that take a mask.

use std::io::Result;
use std::mem::zeroed;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, c_void, sigset_t};

use super::{Fd, check_int, duration, is_set, set_with};

/// Runs of the handlers below.
static HANDLED: AtomicU32 = AtomicU32::new(0);
/// Of those, runs that were given the signal's number and origin.
static INFORMED: AtomicU32 = AtomicU32::new(0);

extern "C" fn counts(_: c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn counts_too(_: c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

extern "C" fn is_informed(signal: c_int, info: *const libc::siginfo_t, context: *const c_void) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
    // SAFETY: installed with SA_SIGINFO.
    let is_right = !context.is_null() && unsafe { (*info).si_signo } == signal;
    INFORMED.fetch_add(u32::from(is_right), Ordering::SeqCst);
}

pub fn handled() -> u32 {
    HANDLED.load(Ordering::SeqCst)
}

fn install(signal: c_int, handler: usize, flags: c_int) -> Result<libc::sigaction> {
    // SAFETY: all-zero is a valid sigaction.
    let mut action: libc::sigaction = unsafe { zeroed() };
    // SAFETY: as above.
    let mut old: libc::sigaction = unsafe { zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: the handlers above may run at any time.
    check_int(unsafe { libc::sigaction(signal, &raw const action, &raw mut old) })?;
    Ok(old)
}

/// Installs a handler that counts, with SA_RESTART or without.
pub fn handle_signal(signal: c_int, restart: bool) -> Result<()> {
    let flags = if restart { libc::SA_RESTART } else { 0 };
    install(signal, counts as extern "C" fn(c_int) as usize, flags).map(drop)
}

/// Gives `signal` its default action back.
pub fn default_signal(signal: c_int) {
    // SAFETY: no handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

pub fn set_of(signals: &[c_int]) -> sigset_t {
    // SAFETY: all-zero is an empty signal set.
    let mut set: sigset_t = unsafe { zeroed() };
    for signal in signals {
        // SAFETY: a set of ours.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    set
}

/// Blocks or unblocks `signal` in the calling thread.
pub fn block_signal(signal: c_int, blocks: bool) {
    let set = set_of(&[signal]);
    let how = if blocks { libc::SIG_BLOCK } else { libc::SIG_UNBLOCK };
    // SAFETY: the set outlives the call.
    unsafe { libc::pthread_sigmask(how, &raw const set, null_mut()) };
}

/// A mask for the waits below; `None` passes no mask.
#[derive(Clone, Copy)]
pub struct Mask(Option<sigset_t>);

impl Mask {
    pub const NONE: Self = Self(None);

    pub fn blocking(signals: &[c_int]) -> Self {
        Self(Some(set_of(signals)))
    }

    fn as_ptr(&self) -> *const sigset_t {
        self.0.as_ref().map_or(null(), |set| &raw const *set)
    }
}

pub fn ppoll(fd: Fd, events: i16, timeout_ms: i32, mask: Mask) -> Result<i16> {
    let mut one = libc::pollfd { fd, events, revents: 0 };
    let time = duration(timeout_ms);
    let time = if timeout_ms < 0 { null() } else { &raw const time };
    // SAFETY: one pollfd; time and mask outlive the call.
    check_int(unsafe { libc::ppoll(&raw mut one, 1, time, mask.as_ptr()) })?;
    Ok(one.revents)
}

/// Whether `fd` can be read, and whether it can be written.
pub fn pselect(
    fd: Fd,
    (reads, writes): (bool, bool),
    timeout_ms: i32,
    mask: Mask,
) -> Result<(bool, bool)> {
    let (mut reads, mut writes) = (set_with(fd, reads), set_with(fd, writes));
    let time = duration(timeout_ms);
    let time = if timeout_ms < 0 { null() } else { &raw const time };
    let (r, w) = (&raw mut reads, &raw mut writes);
    // SAFETY: sets, time and mask outlive the call.
    check_int(unsafe { libc::pselect(fd + 1, r, w, null_mut(), time, mask.as_ptr()) })?;
    Ok((is_set(fd, &reads), is_set(fd, &writes)))
}

/// epoll_pwait, or epoll_pwait2 if `is_precise`.
pub fn epoll_pwait(
    set: Fd,
    timeout_ms: i32,
    mask: Mask,
    is_precise: bool,
) -> Result<Vec<(u32, u64)>> {
    let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 64];
    let (at, max) = (events.as_mut_ptr(), 64);
    let time = duration(timeout_ms);
    let time = if timeout_ms < 0 { null() } else { &raw const time };
    // SAFETY: room for `max` events; time and mask outlive the call.
    let count = check_int(unsafe {
        if is_precise {
            epoll_pwait2(set, at, max, time, mask.as_ptr())
        } else {
            libc::epoll_pwait(set, at, max, timeout_ms, mask.as_ptr())
        }
    })?;
    events.truncate(count as usize);
    Ok(events.iter().map(|event| (event.events, event.u64)).collect())
}

unsafe extern "C" {
    fn epoll_pwait2(
        set: c_int,
        events: *mut libc::epoll_event,
        max: c_int,
        timeout: *const libc::timespec,
        mask: *const sigset_t,
    ) -> c_int;
    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int;
    fn sysv_signal(signal: c_int, handler: usize) -> usize;
    fn sigset(signal: c_int, handler: usize) -> usize;
}

fn name_of(handler: usize) -> String {
    let known = [
        (libc::SIG_DFL, "default"),
        (libc::SIG_IGN, "ignored"),
        (libc::SIG_ERR, "error"),
        (counts as extern "C" fn(c_int) as usize, "counts"),
        (counts_too as extern "C" fn(c_int) as usize, "counts_too"),
        (is_informed as *const () as usize, "is_informed"),
    ];
    let name = known.iter().find(|(at, _)| *at == handler);
    name.map_or_else(|| "something else".to_owned(), |(_, name)| (*name).to_owned())
}

fn kept(signal: c_int) -> String {
    // SAFETY: all-zero is a valid sigaction.
    let mut now: libc::sigaction = unsafe { zeroed() };
    // SAFETY: `now` outlives the call.
    match check_int(unsafe { libc::sigaction(signal, null(), &raw mut now) }) {
        Ok(_) => format!("{} {:x}", name_of(now.sa_sigaction), now.sa_flags),
        Err(error) => super::errno_name(&error),
    }
}

/// Installs handlers in every way that there is; says what libc says of them, and what ran.
pub fn try_handlers() -> String {
    let signal = libc::SIGUSR2;
    let one = counts as extern "C" fn(c_int) as usize;
    let other = counts_too as extern "C" fn(c_int) as usize;
    let mut said = Vec::new();
    let mut say = |what: String| {
        let before = (handled(), INFORMED.load(Ordering::SeqCst));
        if !kept(signal).starts_with("default") {
            // SAFETY: has a handler, or is ignored.
            unsafe { libc::raise(signal) };
        }
        let informed = INFORMED.load(Ordering::SeqCst) - before.1;
        said.push(format!("{what}; now {}; ran {} {informed}", kept(signal), handled() - before.0));
    };
    let mut set = |handler: usize, flags: c_int| match install(signal, handler, flags) {
        Ok(old) => say(format!("was {} {:x}", name_of(old.sa_sigaction), old.sa_flags)),
        Err(error) => say(error.to_string()),
    };
    set(one, libc::SA_RESTART);
    set(other, 0);
    set(other, libc::SA_NODEFER);
    set(is_informed as *const () as usize, libc::SA_SIGINFO | libc::SA_RESTART);
    set(one, 0);
    set(libc::SIG_IGN, 0);
    set(other, libc::SA_RESETHAND);
    set(libc::SIG_DFL, 0);
    // SAFETY: handlers as above.
    unsafe {
        say(name_of(libc::signal(signal, one)));
        say(siginterrupt(signal, 1).to_string());
        say(name_of(libc::signal(signal, other)));
        say(siginterrupt(signal, 0).to_string());
        say(name_of(libc::signal(signal, libc::SIG_IGN)));
        say(name_of(sigset(signal, one)));
        say(name_of(sysv_signal(signal, other)));
        say(name_of(libc::signal(signal, libc::SIG_DFL)));
        say(name_of(libc::signal(libc::SIGKILL, one)));
        say(name_of(libc::signal(4000, one)));
    }
    for bad in [libc::SIGKILL, libc::SIGSTOP, 32, 0, -1, 65] {
        let error = install(bad, one, 0).map(drop).map_err(|error| super::errno_name(&error));
        said.push(format!("{bad}: {error:?} {}", kept(bad)));
    }
    said.join("\n")
}
