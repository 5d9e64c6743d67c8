//! libyasmin.so: a program's TCP connections, given a channel while they last.
//!
//! The program's descriptor stays the kernel's TCP socket. Every interposed call looks its
//! descriptor up in one table: what is not there goes straight to libc; what is a candidate is
//! counted and goes to libc; what has a channel goes by the rules of spec/wire.md section 5.
//!
//! No runtime of its own, no thread, no allocation on the hot path, nothing from libc but
//! `dl_iterate_phdr`, `memcpy` and its kin, and errno's address. It speaks to the kernel directly, and
//! calls libc's own entry only where the program's call sleeps (so that cancellation, EINTR
//! and SA_RESTART are libc's).
//!
//! The files stand in storeys, of which each knows only its own and lower ones: 1 system, 2 table,
//! 3 connection, 4 life, 5 calls, 6 waits, 7 exports (docs/architecture.md has the drawing).
//!
//! Lock order: a set's lock, then a connection's receive lock, then its send lock.
//!
//! Storey 7: exports.
#![no_std]

use core::ffi::{c_char, c_int};

#[cfg(not(target_arch = "x86_64"))]
compile_error!("libyasmin is written for x86-64 Linux so far");

mod alone;
mod answer;
mod arrivals;
mod bare;
mod barrier;
mod bindings;
mod broker;
mod cache;
mod clock;
mod config;
mod conn;
mod delayed;
mod detours;
mod direct;
mod elsewhere;
mod entry;
mod environment;
mod epoll_ctl;
mod epoll_wait;
mod exports;
mod fault;
mod filter;
mod fork;
mod go;
mod guest;
mod handouts;
mod handover;
mod held;
mod holders;
mod image;
mod in_flight;
mod inject;
mod injected;
mod iov;
mod life;
mod lock;
mod memory;
mod object;
mod offer;
mod options;
mod owed;
mod pace;
mod passing;
mod poll;
mod process;
mod promote;
mod ready;
mod real;
mod recv;
mod request;
mod residue;
mod select;
mod send;
mod set;
mod settings;
mod signals;
mod sites;
mod slab;
mod spin;
mod stacks;
mod streams;
mod sys;
mod table;
mod tcp;
mod text;
mod thread;
mod timeout;
mod trampoline;
mod twins;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    sys::abort()
}

/// Named by the precompiled core. Nothing here unwinds but a thread that is cancelled in libc
/// behind a call: there is nothing to clean up in these frames, so on to the program's.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() -> c_int {
    const URC_CONTINUE_UNWIND: c_int = 8;
    URC_CONTINUE_UNWIND
}

/// Runs when the library is loaded, before the program's own constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static INIT: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = init;

/// Runs when the program exits by exit or by returning from main.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = fini;

extern "C" fn fini() {
    if real::is_there() {
        fork::exits();
    }
}

extern "C" fn init(
    _count: c_int,
    _arguments: *const *const c_char,
    environment: *const *const c_char,
) {
    if !real::is_there() {
        return;
    }
    real::resolve();
    trampoline::resolve();
    fault::start();
    config::read(environment);
    clock::calibrate();
    text::start();
    exports::stdio::start();
    go::start();
    alone::start();
    direct::start();
    spin::find_rseq();
    fork::start();
    barrier::start();
    residue::adopt();
    if streams::hides(0) {
        options::leave_to_stream(0);
    }
    if bare::is_blind() {
        handover::nobody_reads();
        return;
    }
    promote::begin_inherited();
}
