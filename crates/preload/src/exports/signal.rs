//! Handlers that the program installs: see `signals`. And signals that it sends.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_void};

use crate::signals;
use crate::sys::{self, SigAction, call};
use crate::{elsewhere, fault, memory, process, real};

/// What libc says is installed, as the program knows it.
///
/// # Safety
/// `old` is writable.
unsafe fn as_the_programs(signal: c_int, old: *mut SigAction) {
    // SAFETY: the caller's.
    unsafe {
        let handler = (*old).handler;
        (*old).handler = signals::translate(signal, handler);
        if fault::is_default(handler) {
            fault::as_the_programs(signal, &mut *old);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const SigAction,
    old: *mut SigAction,
) -> c_int {
    process::refresh();
    let mut ret = 0;
    if new.is_null() {
        // SAFETY: the program's own arguments.
        ret = unsafe { real::sigaction(signal, new, old) };
        if ret == 0 && !old.is_null() {
            // SAFETY: libc filled it in.
            unsafe { as_the_programs(signal, old) };
        }
        return ret;
    }
    let mut is_default = false;
    // SAFETY: the program's own; a bad pointer faults in libc as well.
    let mut own = unsafe { new.read() };
    let restarts = Some(signals::restarts(own.flags));
    let before = signals::replace(signal, own.handler, restarts, |handler| {
        own.handler = handler;
        // SAFETY: the program's own arguments, but for the handler.
        unsafe {
            ret = real::sigaction(signal, &raw const own, old);
            let before = if ret == 0 && !old.is_null() { (*old).handler } else { 0 };
            is_default = fault::is_default(before);
            before
        }
    });
    if ret == 0 && !old.is_null() {
        // SAFETY: libc filled it in.
        unsafe {
            (*old).handler = before;
            if is_default {
                fault::as_the_programs(signal, &mut *old);
            }
        }
    }
    ret
}

/// rt_sigaction, with the kernel's struct sigaction: handler, flags, way back, mask.
///
/// # Safety
/// The program's own arguments.
pub unsafe fn by_number(
    signal: c_int,
    new: *const [u64; 4],
    old: *mut [u64; 4],
    mask_bytes: usize,
) -> c_int {
    // To look at a bad address takes a fault, and the way back from its handler is a call.
    let action = if new.is_null() { None } else { memory::get(new) };
    let is_bad = mask_bytes != 8 || !new.is_null() && action.is_none();
    if is_bad {
        // SAFETY: the kernel says what is wrong.
        return sys::returned(unsafe { call!(rt_sigaction, signal, new, old, mask_bytes) })
            as c_int;
    }
    let action = action.map(|[handler, flags, restorer, mask]| {
        let (handler, restorer) = (handler as usize, restorer as usize);
        let mut action = SigAction { handler, mask: [0; 16], flags: flags as c_int, restorer };
        action.mask[0] = mask;
        action
    });
    let mut before = SigAction { handler: 0, mask: [0; 16], flags: 0, restorer: 0 };
    let action = action.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: both are ours.
    let ret = unsafe { sigaction(signal, action, &raw mut before) };
    let SigAction { handler, mask, flags, restorer } = before;
    let before = [handler as u64, u64::from(flags as u32), restorer as u64, mask[0]];
    if ret == 0 && !old.is_null() && !memory::put(old, before) {
        return sys::returned(-(sys::EFAULT as sys::Ret)) as c_int;
    }
    ret
}

macro_rules! simple {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(signal: c_int, handler: usize) -> usize {
            process::refresh();
            signals::replace(signal, handler, None, |handler| {
                // SAFETY: the program's own arguments, but for the handler.
                unsafe { real::$name(signal, handler) }
            })
        }
    )*};
}

simple! { signal bsd_signal ssignal sysv_signal __sysv_signal sigset }

#[unsafe(no_mangle)]
unsafe extern "C" fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    // SAFETY: no memory involved.
    let ret = unsafe { real::siginterrupt(signal, interrupts) };
    signals::refresh(signal);
    ret
}

/// A signal is a step (`elsewhere`): a signalfd tells of it.
fn noted(ret: c_int) -> c_int {
    if ret == 0 {
        elsewhere::note_step();
    }
    ret
}

#[unsafe(no_mangle)]
unsafe extern "C" fn kill(to: c_int, signal: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    noted(unsafe { real::kill(to, signal) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sigqueue(to: c_int, signal: c_int, value: *mut c_void) -> c_int {
    // SAFETY: the program's own arguments.
    noted(unsafe { real::sigqueue(to, signal, value) })
}
