//! What is known of a program: whether it has this library, or will have it once it runs.
//!
//! Asked only for the sake of bytes that lie unread in a ring. A wrong "no" resets a
//! connection; a wrong "yes" loses these bytes.
//!
//! Storey 1: system.

use core::ffi::{CStr, c_char, c_int};

use yasmin_image::{Library, MAX_SCRIPTS, Machine, Program, Rights, shebang};

use crate::sys::{self, AT_FDCWD, O_CLOEXEC, call};
use crate::{environment, memory, process};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// There is no such program: the exec will fail.
    Missing,
    Library,
    Plain,
}

/// How a program is named.
#[derive(Clone, Copy)]
pub enum Name {
    Path(*const c_char),
    /// In the folders of PATH, unless it has a slash.
    Search(*const c_char),
    At {
        folder: c_int,
        path: *const c_char,
    },
    Open(c_int),
}

pub const X_OK: usize = 1;
pub const PATH_BYTES: usize = 4096;
const HEAD_BYTES: usize = 4096;
/// In the library's path, wherever it is installed, and in no other library's of this project.
const LIBRARY: &[u8] = b"libyasmin.so";
const SHELL: &[u8] = b"/bin/sh";
/// x86-64, and no library that it must be loaded with: so musl's loader takes it as well.
const OURS: Library = Library {
    machine: Machine { is_64: true, little_endian: true, architecture: 62 },
    needs_libraries: false,
};

struct File(c_int);

impl Drop for File {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

enum Opened {
    File(File),
    /// It may be run, not read.
    Unreadable,
    Missing,
}

/// What `name` is, run with `environment`.
///
/// # Safety
/// As for exec: C strings, and an array of them that ends with null.
pub unsafe fn of(name: Name, environment: *const *const c_char) -> Image {
    // SAFETY: the caller's strings.
    match unsafe { open(name) } {
        Opened::Missing => Image::Missing,
        Opened::Unreadable => Image::Plain,
        Opened::File(file) => {
            // A text that the kernel refuses, libc's search gives to the shell.
            let is_for_shell = || matches!(name, Name::Search(_)) && has_no_kind(&file);
            let is_loaded = || {
                is_loaded_into(&file, MAX_SCRIPTS)
                    || is_for_shell() && is_loaded_into_interpreter(SHELL, MAX_SCRIPTS)
            };
            // SAFETY: the caller's environment.
            if unsafe { names_library(environment) } && is_loaded() {
                Image::Library
            } else {
                Image::Plain
            }
        }
    }
}

/// Whether `name`, run with `environment`, is a program to which no loader gives the library, but `yasmin-inject` can.
///
/// # Safety
/// As `of`.
pub unsafe fn is_alone(name: Name, environment: *const *const c_char) -> bool {
    // SAFETY: the caller's.
    unsafe { may_inject(environment) && is_injectable(&open(name)) }
}

/// Whether programs with this environment are to have the library, and be injected if need be. Not so valgrind's own,
/// which are static: what they have in their memory is another program.
///
/// # Safety
/// As for `environment::variable`.
unsafe fn may_inject(environment: *const *const c_char) -> bool {
    // SAFETY: the caller's environment.
    unsafe {
        names_library(environment)
            && environment::variable(environment, b"VALGRIND_LAUNCHER=").is_none()
    }
}

/// Whether the program `name`, looked for in PATH if it is to be and has no slash, `is_alone`. Its path is `path` then,
/// with a NUL.
///
/// # Safety
/// As `of`.
pub unsafe fn finds_alone(
    name: &CStr,
    searches: bool,
    environment: *const *const c_char,
    path: &mut [u8; PATH_BYTES],
) -> bool {
    let name = name.to_bytes_with_nul();
    // SAFETY: the caller's environment.
    if name.len() > PATH_BYTES || !unsafe { may_inject(environment) } {
        return false;
    }
    let opened = if searches && !name.contains(&b'/') {
        search(&name[..name.len() - 1], path)
    } else {
        path[..name.len()].copy_from_slice(name);
        open_at(AT_FDCWD, path.as_ptr().cast())
    };
    is_injectable(&opened)
}

fn is_injectable(opened: &Opened) -> bool {
    let Opened::File(file) = opened else { return false };
    stands_alone(file) && !raises_rights(file)
}

fn stands_alone(file: &File) -> bool {
    yasmin_image::alone(|to, at| read_at(file, to, at as usize) == to.len()).is_some()
}

/// Whether it is neither a script that names its interpreter nor ELF.
fn has_no_kind(file: &File) -> bool {
    let mut head = [0u8; 4];
    let len = read_at(file, &mut head, 0);
    !head[..len].starts_with(b"#!") && head[..len] != *b"\x7fELF"
}

/// # Safety
/// C strings.
unsafe fn open(name: Name) -> Opened {
    match name {
        Name::Path(path) => open_at(AT_FDCWD, path),
        Name::At { folder, path } => {
            if memory::get(path) == Some(0) {
                copy(folder)
            } else {
                open_at(folder, path)
            }
        }
        Name::Open(fd) => copy(fd),
        Name::Search(path) => {
            // SAFETY: a C string.
            let name = unsafe { CStr::from_ptr(path) }.to_bytes();
            if name.contains(&b'/') {
                open_at(AT_FDCWD, path)
            } else {
                search(name, &mut [0; PATH_BYTES])
            }
        }
    }
}

fn copy(fd: c_int) -> Opened {
    // SAFETY: no memory involved.
    let fd = unsafe { call!(fcntl, fd, sys::F_DUPFD_CLOEXEC, 0) } as c_int;
    if fd < 0 { Opened::Missing } else { Opened::File(File(fd)) }
}

fn open_at(folder: c_int, path: *const c_char) -> Opened {
    // A pipe or a terminal of this name is no program, and nothing happens to it.
    const O_NOCTTY: c_int = 0o400;
    const FLAGS: c_int = O_CLOEXEC | sys::O_NONBLOCK | O_NOCTTY;
    // SAFETY: a C string.
    let may_run = unsafe { call!(faccessat, folder, path, X_OK) } == 0;
    if !may_run {
        return Opened::Missing;
    }
    // SAFETY: a C string.
    let fd = unsafe { call!(openat, folder, path, FLAGS) } as c_int;
    if fd < 0 { Opened::Unreadable } else { Opened::File(File(fd)) }
}

/// In the folders of PATH; what is found is `path`, with a NUL.
fn search(name: &[u8], path: &mut [u8; PATH_BYTES]) -> Opened {
    // SAFETY: the program's environment.
    let folders =
        unsafe { environment::variable(environment::own(), b"PATH=") }.unwrap_or(b"/bin:/usr/bin");
    for folder in folders.split(|byte| *byte == b':') {
        let len = folder.len() + 1 + name.len();
        if len >= PATH_BYTES {
            continue;
        }
        let at = if folder.is_empty() { 0 } else { folder.len() + 1 };
        path[..folder.len()].copy_from_slice(folder);
        if at > 0 {
            path[at - 1] = b'/';
        }
        path[at..at + name.len()].copy_from_slice(name);
        path[at + name.len()] = 0;
        match open_at(AT_FDCWD, path.as_ptr().cast()) {
            Opened::Missing => {}
            opened => return opened,
        }
    }
    Opened::Missing
}

/// Whether the loader of a program with this environment finds the library.
///
/// # Safety
/// As for `environment::variable`.
unsafe fn names_library(environment: *const *const c_char) -> bool {
    // SAFETY: the caller's environment.
    unsafe { environment::preloaded(environment) }.and_then(own_path).is_some_and(is_there)
}

/// The library's path in the value of LD_PRELOAD.
pub fn own_path(preloaded: &[u8]) -> Option<&[u8]> {
    environment::paths(preloaded).find(|path| has_name(path))
}

/// Whether there is such a file for this process. What has no slash the loader looks for.
#[inline(never)]
fn is_there(path: &[u8]) -> bool {
    const R_OK: usize = 4;
    let mut text = [0u8; PATH_BYTES];
    match text[..PATH_BYTES - 1].get_mut(..path.len()) {
        Some(room) if path.contains(&b'/') => {
            room.copy_from_slice(path);
            // SAFETY: a C string.
            unsafe { call!(faccessat, AT_FDCWD, text.as_ptr(), R_OK) == 0 }
        }
        _ => true,
    }
}

/// Whether the loader of the program `name` would complain about the library, which `environment` names: it is for
/// another machine, or from here there is no such file (chroot).
///
/// # Safety
/// As `of`.
pub unsafe fn complains(name: Name, environment: *const *const c_char) -> bool {
    // SAFETY: the caller's.
    unsafe {
        if is_lost(environment) {
            return true;
        }
        let is_named = environment::preloaded(environment).and_then(own_path).is_some();
        is_named && matches!(open(name), Opened::File(file) if is_foreign(&file, MAX_SCRIPTS))
    }
}

/// Whether `environment` names the library, and from here there is no such file.
///
/// # Safety
/// As for `environment::variable`.
pub unsafe fn is_lost(environment: *const *const c_char) -> bool {
    // SAFETY: the caller's environment.
    let own = unsafe { environment::preloaded(environment) }.and_then(own_path);
    own.is_some_and(|path| !is_there(path))
}

/// Whether it, or the interpreter that it names, is for another machine.
fn is_foreign(file: &File, scripts: usize) -> bool {
    // So much the kernel looks at.
    let mut head = [0u8; 256];
    let len = read_at(file, &mut head, 0);
    let head = &head[..len];
    match shebang(head) {
        Some((interpreter, _)) => {
            scripts > 0
                && matches!(open_named(interpreter), Opened::File(file) if is_foreign(&file, scripts - 1))
        }
        None => machine(head).is_some_and(|machine| machine != OURS.machine),
    }
}

/// What an ELF file is for, by its first bytes.
fn machine(head: &[u8]) -> Option<Machine> {
    let is_elf = head.len() >= 20 && head.starts_with(b"\x7fELF");
    is_elf.then(|| Machine {
        is_64: head[4] == 2,
        little_endian: head[5] == 1,
        architecture: u16::from_le_bytes([head[18], head[19]]),
    })
}

pub fn has_name(text: &[u8]) -> bool {
    text.windows(LIBRARY.len()).any(|part| part == LIBRARY)
}

/// Whether a process that runs has the library mapped. False too if it cannot be looked at.
pub fn is_in(pid: u32) -> bool {
    let Some(fd) = process::open_file_of(pid, b"maps") else { return false };
    let file = File(fd);
    let mut text = [0u8; PATH_BYTES];
    let mut kept = 0;
    loop {
        let room = &mut text[kept..];
        // SAFETY: the kernel writes into `room` only.
        let ret = unsafe { call!(read, file.0, room.as_mut_ptr(), room.len()) };
        let Ok(len @ 1..) = usize::try_from(ret) else { return false };
        let end = kept + len;
        if has_name(&text[..end]) {
            return true;
        }
        // A name may lie across two reads.
        kept = end.min(LIBRARY.len());
        text.copy_within(end - kept..end, 0);
    }
}

/// Whether the loader of the file, or of the one that interprets it, heeds LD_PRELOAD.
fn is_loaded_into(file: &File, scripts: usize) -> bool {
    let mut head = [0u8; HEAD_BYTES];
    let len = read_at(file, &mut head, 0);
    let head = &head[..len];
    if raises_rights(file) {
        return false;
    }
    if let Some((interpreter, _)) = shebang(head) {
        return scripts > 0 && is_loaded_into_interpreter(interpreter, scripts - 1);
    }
    let Some(machine) = machine(head).filter(|machine| machine.is_64 && head.len() >= 64) else {
        return false;
    };
    // There it does nothing, unless it is injected.
    if stands_alone(file) {
        return false;
    }
    let mut path = [0u8; PATH_BYTES];
    let interpreter = interpreter_of(file, head, &mut path);
    yasmin_image::loads(&Program { machine, interpreter }, &OURS).is_ok()
}

fn is_loaded_into_interpreter(name: &[u8], scripts: usize) -> bool {
    matches!(open_named(name), Opened::File(file) if is_loaded_into(&file, scripts))
}

#[inline(never)]
fn open_named(name: &[u8]) -> Opened {
    let mut path = [0u8; PATH_BYTES];
    match path[..PATH_BYTES - 1].get_mut(..name.len()) {
        Some(room) => {
            room.copy_from_slice(name);
            open_at(AT_FDCWD, path.as_ptr().cast())
        }
        None => Opened::Missing,
    }
}

/// The path in the file's PT_INTERP, in `path`.
fn interpreter_of<'a>(file: &File, head: &[u8], path: &'a mut [u8]) -> Option<&'a [u8]> {
    const PT_INTERP: u64 = 3;
    const ENTRY_BYTES: usize = 56;
    let number = |bytes: &[u8], at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let offset = number(head, 32, 8) as usize;
    let (size, count) = (number(head, 54, 2) as usize, number(head, 56, 2) as usize);
    if size < ENTRY_BYTES {
        return None;
    }
    (0..count.min(128))
        .find_map(|nth| {
            let mut entry = [0u8; ENTRY_BYTES];
            let is_read = read_at(file, &mut entry, offset.wrapping_add(nth * size)) == ENTRY_BYTES;
            (is_read && number(&entry, 0, 4) == PT_INTERP)
                .then(|| (number(&entry, 8, 8) as usize, number(&entry, 32, 8) as usize))
        })
        .and_then(|(at, len)| {
            let room = path.get_mut(..len)?;
            let got = read_at(file, room, at);
            (got == len).then_some(&*room)
        })
}

fn read_at(file: &File, to: &mut [u8], at: usize) -> usize {
    // SAFETY: the kernel writes into `to` only.
    let ret = unsafe { call!(pread64, file.0, to.as_mut_ptr(), to.len(), at) };
    usize::try_from(ret).unwrap_or(0)
}

/// True too where nothing can be learnt of the file.
fn raises_rights(file: &File) -> bool {
    const MODE: usize = 24;
    const UID: usize = 28;
    const GID: usize = 32;
    let mut stat = [0u8; 144];
    // SAFETY: struct stat is 144 bytes on x86-64.
    if unsafe { call!(fstat, file.0, stat.as_mut_ptr()) } != 0 {
        return true;
    }
    let word = |at: usize| u32::from_ne_bytes([stat[at], stat[at + 1], stat[at + 2], stat[at + 3]]);
    let (uid, gid) = process::effective_ids();
    let name = c"security.capability".as_ptr();
    // SAFETY: a C string; the kernel only says how long the attribute is.
    let has_capabilities = unsafe { call!(fgetxattr, file.0, name, 0, 0) } > 0;
    let rights = Rights { mode: word(MODE), uid: word(UID), gid: word(GID), has_capabilities };
    yasmin_image::gained(&rights, uid, gid).is_some()
}
