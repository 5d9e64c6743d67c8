//! exec: this process becomes another program, unless it fails.
//!
//! Storey 7: exports.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

use crate::image::{self, Image, Name};
use crate::inject::{self, Stand, Tracer};
use crate::{clock, environment, handover, memory, process, promote, real};

type Strings = *const *const c_char;

/// Before this process becomes the program `name`, by `exec` with an environment.
///
/// # Safety
/// As for exec.
unsafe fn becomes(name: Name, environment: Strings, exec: impl Fn(Strings) -> c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let tracer = unsafe { before(name, environment) };
    // SAFETY: as above.
    let ret = unsafe { given(name, environment, exec) };
    if let Some(tracer) = tracer {
        tracer.cancel();
    }
    handover::exec_failed();
    ret
}

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

/// Hands `to` the environment for the program `name`: a loader that would complain about this library does not hear of it.
///
/// # Safety
/// As for exec.
unsafe fn given<R>(name: Name, environment: Strings, to: impl FnOnce(Strings) -> R) -> R {
    // SAFETY: the program's own arguments.
    unsafe {
        if !process::is_sandboxed() && image::complains(name, environment) {
            return environment::without(environment, image::has_name, to);
        }
    }
    to(environment)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    let exec = |environment| unsafe { real::execve(path, arguments, environment) };
    // SAFETY: as above.
    unsafe { becomes(Name::Path(path), environment, exec) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    let exec = |environment| unsafe { real::execve(path, arguments, environment) };
    // SAFETY: as above.
    unsafe { becomes(Name::Path(path), environment::own(), exec) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    let exec = |environment| unsafe { real::execvpe(file, arguments, environment) };
    // SAFETY: as above.
    unsafe { becomes(Name::Search(file), environment::own(), exec) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: the program's own arguments.
    let exec = |environment| unsafe { real::execvpe(file, arguments, environment) };
    // SAFETY: as above.
    unsafe { becomes(Name::Search(file), environment, exec) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    // SAFETY: the program's own arguments.
    let exec = |environment| unsafe { real::fexecve(fd, arguments, environment) };
    // SAFETY: as above.
    unsafe { becomes(Name::Open(fd), environment, exec) }
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
    let exec = |environment| unsafe { real::execveat(folder, path, arguments, environment, flags) };
    // SAFETY: as above.
    unsafe { becomes(Name::At { folder, path }, environment, exec) }
}

/// Before execl and its kin, whose arguments are as many as the program likes.
pub extern "C" fn before_execl(path: *const c_char) {
    before_by_own(Name::Path(path));
}

pub extern "C" fn before_execlp(file: *const c_char) {
    before_by_own(Name::Search(file));
}

/// With the program's own environment, which libc hands on. (execle's lies somewhere among its arguments.)
fn before_by_own(name: Name) {
    // SAFETY: the program's own arguments.
    unsafe {
        before(name, environment::own());
        if !process::is_sandboxed() && image::complains(name, environment::own()) {
            environment::change_own(image::has_name);
        }
    }
}

/// What posix_spawn and posix_spawnp are given besides the program's name.
#[derive(Clone, Copy)]
struct Spawned {
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
}

/// Starts the program `name`, which posix_spawnp `searches` for.
///
/// # Safety
/// As for posix_spawn.
unsafe fn starts(
    child: *mut c_int,
    name: *const c_char,
    searches: bool,
    spawned: &Spawned,
) -> c_int {
    let Spawned { actions, attributes, arguments, environment } = *spawned;
    let program = if searches { Name::Search(name) } else { Name::Path(name) };
    // SAFETY: the program's own arguments.
    unsafe {
        // With the rights of others a program is not traced. Of a bad name the kernel tells.
        let stand = if changes_rights(attributes) || memory::get(name).is_none() {
            None
        } else {
            Stand::of(CStr::from_ptr(name), searches, !actions.is_null(), arguments, environment)
        };
        handover::before_start(|| match stand {
            Some(_) => Image::Library,
            None => image::of(program, environment),
        });
        if let Some(stand) = stand {
            let (path, arguments) = (stand.path(), stand.arguments().cast_const());
            return real::posix_spawn(child, path, actions, attributes, arguments, environment);
        }
        let start = if searches { real::posix_spawnp } else { real::posix_spawn };
        given(program, environment, |environment| {
            start(child, name, actions, attributes, arguments, environment)
        })
    }
}

/// # Safety
/// Null, or attributes of posix_spawn's.
unsafe fn changes_rights(attributes: *const c_void) -> bool {
    const POSIX_SPAWN_RESETIDS: i16 = 1;
    let mut flags = 0;
    // SAFETY: the caller's.
    !attributes.is_null()
        && unsafe { real::posix_spawnattr_getflags(attributes, &raw mut flags) } == 0
        && flags & POSIX_SPAWN_RESETIDS != 0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawn(
    child: *mut c_int,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let spawned = Spawned { actions, attributes, arguments, environment };
    // SAFETY: the program's own arguments.
    unsafe { starts(child, path, false, &spawned) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_spawnp(
    child: *mut c_int,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    let spawned = Spawned { actions, attributes, arguments, environment };
    // SAFETY: the program's own arguments.
    unsafe { starts(child, file, true, &spawned) }
}

/// A program that will be started gets `fd` under another number, though it may close on exec.
pub extern "C" fn before_adddup2(_: *mut u8, fd: c_int) {
    handover::will_lend(fd);
}

/// Before prctl.
pub extern "C" fn before_prctl(option: c_int, mode: c_long, filter: c_long) {
    const PR_SET_SECCOMP: c_int = 22;
    const SECCOMP_MODE_FILTER: c_long = 2;
    const PR_SET_TSC: c_int = 26;
    const PR_TSC_SIGSEGV: c_long = 2;
    if option == PR_SET_TSC && mode == PR_TSC_SIGSEGV {
        promote::enter_sandbox();
        clock::forbids_counter();
    }
    // Without a filter it only asks whether the kernel knows such.
    if option == PR_SET_SECCOMP && (mode != SECCOMP_MODE_FILTER || filter != 0) {
        promote::enter_sandbox();
    }
}

/// Before system, popen and wordexp.
pub extern "C" fn before_shell() {
    let shell = Name::Path(c"/bin/sh".as_ptr());
    // SAFETY: the program's own environment.
    unsafe {
        if !process::is_sandboxed() && image::is_lost(environment::own()) {
            environment::change_own(image::has_name);
        }
    }
    // SAFETY: C strings; without a command system only asks whether there is a shell.
    handover::before_start(|| -> Image { unsafe { image::of(shell, environment::own()) } });
}
