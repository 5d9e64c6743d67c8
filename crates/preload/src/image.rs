//! What is known of a program: whether it has this library, or will have it once it runs.
//!
//! Asked only for the sake of bytes that lie unread in a ring. A wrong "no" resets a
//! connection; a wrong "yes" loses these bytes.
//!
//! Storey 1: system.

use core::ffi::{c_char, c_int};

use crate::sys::{self, call};
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

const AT_FDCWD: c_int = -100;
const O_CLOEXEC: usize = 0o2000000;
const X_OK: usize = 1;
const PATH_BYTES: usize = 4096;
const HEAD_BYTES: usize = 4096;
/// In the library's path, wherever it is installed, and in no other library's of this project.
const LIBRARY: &[u8] = b"libyasmin.so";
const EM_X86_64: u16 = 62;
/// Scripts whose interpreters are scripts: as far as the kernel goes.
const DEPTH: u32 = 5;

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
            // SAFETY: the caller's environment.
            if unsafe { names_library(environment) } && is_dynamic(&file, DEPTH) {
                Image::Library
            } else {
                Image::Plain
            }
        }
    }
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
            let name = unsafe { core::ffi::CStr::from_ptr(path) }.to_bytes();
            if name.contains(&b'/') { open_at(AT_FDCWD, path) } else { search(name) }
        }
    }
}

fn copy(fd: c_int) -> Opened {
    // SAFETY: no memory involved.
    let fd = unsafe { call!(fcntl, fd, sys::F_DUPFD_CLOEXEC, 0) } as c_int;
    if fd < 0 { Opened::Missing } else { Opened::File(File(fd)) }
}

fn open_at(folder: c_int, path: *const c_char) -> Opened {
    // SAFETY: a C string.
    let may_run = unsafe { call!(faccessat, folder, path, X_OK) } == 0;
    if !may_run {
        return Opened::Missing;
    }
    // SAFETY: a C string.
    let fd = unsafe { call!(openat, folder, path, O_CLOEXEC) } as c_int;
    if fd < 0 { Opened::Unreadable } else { Opened::File(File(fd)) }
}

fn search(name: &[u8]) -> Opened {
    // SAFETY: the program's environment.
    let folders =
        unsafe { environment::variable(environment::own(), b"PATH=") }.unwrap_or(b"/bin:/usr/bin");
    for folder in folders.split(|byte| *byte == b':') {
        let mut path = [0u8; PATH_BYTES];
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
        match open_at(AT_FDCWD, path.as_ptr().cast()) {
            Opened::Missing => {}
            opened => return opened,
        }
    }
    Opened::Missing
}

/// # Safety
/// As for `environment::variable`.
unsafe fn names_library(environment: *const *const c_char) -> bool {
    // SAFETY: the caller's environment.
    unsafe { environment::variable(environment, b"LD_PRELOAD=") }.is_some_and(has_name)
}

fn has_name(text: &[u8]) -> bool {
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

/// Whether the file is an ELF program with an interpreter, or a script for one, and keeps its
/// user's rights: then the loader heeds LD_PRELOAD.
fn is_dynamic(file: &File, depth: u32) -> bool {
    let mut head = [0u8; HEAD_BYTES];
    let len = read_at(file, &mut head, 0);
    let head = &head[..len];
    if raises_rights(file) {
        return false;
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        return depth > 0 && interpreter_is_dynamic(line, depth - 1);
    }
    let is_elf64 = head.len() >= 64 && head.starts_with(b"\x7fELF\x02");
    is_elf64 && head[18..20] == EM_X86_64.to_le_bytes() && has_interpreter(file, head)
}

fn interpreter_is_dynamic(line: &[u8], depth: u32) -> bool {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or(line).trim_ascii_start();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let mut path = [0u8; PATH_BYTES];
    if end == 0 || end >= PATH_BYTES {
        return false;
    }
    path[..end].copy_from_slice(&line[..end]);
    match open_at(AT_FDCWD, path.as_ptr().cast()) {
        Opened::File(file) => is_dynamic(&file, depth),
        _ => false,
    }
}

fn has_interpreter(file: &File, head: &[u8]) -> bool {
    const PT_INTERP: u32 = 3;
    const ENTRY_BYTES: usize = 56;
    let number = |at: usize, len: usize| {
        head[at..at + len].iter().rev().fold(0usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (offset, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    if size < ENTRY_BYTES {
        return false;
    }
    (0..count.min(128)).any(|nth| {
        let mut kind = [0u8; 4];
        let at = offset.wrapping_add(nth * size);
        read_at(file, &mut kind, at) == kind.len() && u32::from_le_bytes(kind) == PT_INTERP
    })
}

fn read_at(file: &File, to: &mut [u8], at: usize) -> usize {
    // SAFETY: the kernel writes into `to` only.
    let ret = unsafe { call!(pread64, file.0, to.as_mut_ptr(), to.len(), at) };
    usize::try_from(ret).unwrap_or(0)
}

/// Set-user-id of another user, or set-group-id, or capabilities that the user does not have anyway.
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
    let has_capabilities = uid != 0 && unsafe { call!(fgetxattr, file.0, name, 0, 0) } > 0;
    has_capabilities
        || word(MODE) & 0o4000 != 0 && word(UID) != uid
        || word(MODE) & 0o2000 != 0 && word(GID) != gid
}
