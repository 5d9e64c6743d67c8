//! exec: this process becomes another program, unless it fails.
//!
//! Storey 7: exports.

use core::ffi::{c_char, c_int, c_long};

use crate::image::{self, Image, Name};
use crate::inject::{self, Tracer};
use crate::{environment, handover, promote, real};

type Strings = *const *const c_char;

/// # Safety
/// As for exec.
unsafe fn before(name: Name, environment: Strings) -> Option<Tracer> {
    // SAFETY: the program's own arguments.
    let tracer = unsafe { inject::before_exec(name, environment) };
    let image = || match tracer {
        Some(_) => Image::Library,
        // SAFETY: the program's own arguments.
        None => unsafe { image::of(name, environment) },
    };
    handover::before_exec(image);
    tracer
}

fn failed(tracer: Option<Tracer>, ret: c_int) -> c_int {
    if let Some(tracer) = tracer {
        tracer.cancel();
    }
    handover::exec_failed();
    ret
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let tracer = before(Name::Path(path), environment);
        failed(tracer, real::execve(path, arguments, environment))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let tracer = before(Name::Path(path), environment::own());
        failed(tracer, real::execv(path, arguments))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let tracer = before(Name::Search(file), environment::own());
        failed(tracer, real::execvp(file, arguments))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let tracer = before(Name::Search(file), environment);
        failed(tracer, real::execvpe(file, arguments, environment))
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let tracer = before(Name::Open(fd), environment);
        failed(tracer, real::fexecve(fd, arguments, environment))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    folder: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let tracer = before(Name::At { folder, path }, environment);
        failed(tracer, real::execveat(folder, path, arguments, environment, flags))
    }
}

/// Before execl and its kin, whose arguments are as many as the program likes.
pub extern "C" fn before_execl(path: *const c_char) {
    // SAFETY: the program's own arguments.
    unsafe { before(Name::Path(path), environment::own()) };
}

pub extern "C" fn before_execlp(file: *const c_char) {
    // SAFETY: the program's own arguments.
    unsafe { before(Name::Search(file), environment::own()) };
}

pub extern "C" fn before_posix_spawn(
    _: *mut c_int,
    path: *const c_char,
    _: *const u8,
    _: *const u8,
    _: Strings,
    environment: Strings,
) {
    // SAFETY: the program's own arguments.
    handover::before_start(|| unsafe { image::of(Name::Path(path), environment) });
}

pub extern "C" fn before_posix_spawnp(
    _: *mut c_int,
    file: *const c_char,
    _: *const u8,
    _: *const u8,
    _: Strings,
    environment: Strings,
) {
    // SAFETY: the program's own arguments.
    handover::before_start(|| unsafe { image::of(Name::Search(file), environment) });
}

/// A program that will be started gets `fd` under another number, though it may close on exec.
pub extern "C" fn before_adddup2(_: *mut u8, fd: c_int) {
    handover::will_lend(fd);
}

/// Before prctl.
pub extern "C" fn before_prctl(option: c_int, mode: c_long, filter: c_long) {
    const PR_SET_SECCOMP: c_int = 22;
    const SECCOMP_MODE_FILTER: c_long = 2;
    // Without a filter it only asks whether the kernel knows such.
    if option == PR_SET_SECCOMP && (mode != SECCOMP_MODE_FILTER || filter != 0) {
        promote::enter_sandbox();
    }
}

/// Before system, popen and wordexp.
pub extern "C" fn before_shell() {
    let shell = Name::Path(c"/bin/sh".as_ptr());
    // SAFETY: C strings; without a command system only asks whether there is a shell.
    handover::before_start(|| -> Image { unsafe { image::of(shell, environment::own()) } });
}
