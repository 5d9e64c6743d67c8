//! exec: this process becomes another program, unless it fails.
//!
//! Storey 7: exports.

use core::ffi::{CStr, c_char, c_int, c_long, c_void};

use crate::image::{self, Image, Name};
use crate::inject::{self, Stand, Tracer};
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

/// What posix_spawn and posix_spawnp are given besides the program's name.
#[derive(Clone, Copy)]
struct Spawned {
    actions: *const c_void,
    attributes: *const c_void,
    arguments: Strings,
    environment: Strings,
}

/// # Safety
/// As for posix_spawn.
unsafe fn before_spawn(name: *const c_char, searches: bool, spawned: &Spawned) -> Option<Stand> {
    // SAFETY: the program's own arguments.
    let stand = unsafe {
        // With the rights of others a program is not traced.
        if changes_rights(spawned.attributes) {
            None
        } else {
            let Spawned { actions, arguments, environment, .. } = *spawned;
            Stand::of(CStr::from_ptr(name), searches, !actions.is_null(), arguments, environment)
        }
    };
    let name = if searches { Name::Search(name) } else { Name::Path(name) };
    handover::before_start(|| match stand {
        Some(_) => Image::Library,
        // SAFETY: the program's own arguments.
        None => unsafe { image::of(name, spawned.environment) },
    });
    stand
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
    unsafe {
        let stand = before_spawn(path, false, &spawned);
        let (path, arguments) = match &stand {
            Some(stand) => (stand.path(), stand.arguments().cast_const()),
            None => (path, arguments),
        };
        real::posix_spawn(child, path, actions, attributes, arguments, environment)
    }
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
    unsafe {
        let stand = before_spawn(file, true, &spawned);
        let (file, arguments) = match &stand {
            Some(stand) => (stand.path(), stand.arguments().cast_const()),
            None => (file, arguments),
        };
        real::posix_spawnp(child, file, actions, attributes, arguments, environment)
    }
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
