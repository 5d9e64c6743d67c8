//! Which programs the dynamic loader gives a preloaded library to (ld.so(8), execve(2), elf(5)).
//!
//! One answer for the two who ask: the command before it starts a program, and the library before
//! an exec hands on what is unread. Both bring what they read of the files; nothing is opened here.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

/// Scripts whose interpreters are scripts: as far as the kernel goes (BINPRM_MAX_RECURSION).
pub const MAX_SCRIPTS: usize = 5;

/// Class, byte order and architecture: those of program and library must be equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    pub is_64: bool,
    pub little_endian: bool,
    /// `e_machine`.
    pub architecture: u16,
}

/// A program, as far as loading goes.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a> {
    pub machine: Machine,
    /// The path in its PT_INTERP, with or without the zero behind it; `None`: static.
    pub interpreter: Option<&'a [u8]>,
}

/// The library that is to be preloaded.
#[derive(Clone, Copy, Debug)]
pub struct Library {
    pub machine: Machine,
    /// It names libraries that must be loaded with it.
    pub needs_libraries: bool,
}

/// Why a program does not get the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no loader.
    Static,
    /// It is built for another machine.
    Machine,
    /// musl's loader cannot load glibc for the library's sake.
    NeedsGlibc,
    /// Nobody knows what its loader does.
    UnknownLoader,
}

/// # Errors
/// Why the loader does not give `library` to `program`.
pub fn loads(program: &Program<'_>, library: &Library) -> Result<(), Refusal> {
    let Some(interpreter) = program.interpreter else { return Err(Refusal::Static) };
    if program.machine != library.machine {
        return Err(Refusal::Machine);
    }
    let path = interpreter.strip_suffix(b"\0").unwrap_or(interpreter);
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    if name.starts_with(b"ld-musl-") {
        return if library.needs_libraries { Err(Refusal::NeedsGlibc) } else { Ok(()) };
    }
    let is_glibc = name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so");
    if is_glibc { Ok(()) } else { Err(Refusal::UnknownLoader) }
}

/// What a program's file says about rights.
#[derive(Clone, Copy, Debug)]
pub struct Rights {
    /// `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// It has the attribute `security.capability`.
    pub has_capabilities: bool,
}

/// What an exec would raise, so that the loader ignores LD_PRELOAD (secure-execution mode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    SetUid,
    SetGid,
    Capabilities,
}

/// What the user with these numbers would gain, unless the mount or the process forbids it.
pub fn gained(rights: &Rights, uid: u32, gid: u32) -> Option<Gain> {
    const SET_UID: u32 = 0o4000;
    // Without the group's right to execute it marks mandatory locks (inode(7)).
    const SET_GID: u32 = 0o2010;
    if rights.mode & SET_UID != 0 && rights.uid != uid {
        Some(Gain::SetUid)
    } else if rights.mode & SET_GID == SET_GID && rights.gid != gid {
        Some(Gain::SetGid)
    } else if uid != 0 && rights.has_capabilities {
        Some(Gain::Capabilities)
    } else {
        None
    }
}

/// Interpreter and argument of a script that begins with `head`; `None`: it is no such script.
pub fn shebang(head: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?.trim_ascii();
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    (end > 0).then(|| (interpreter, argument.trim_ascii()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Machine = Machine { is_64: true, little_endian: true, architecture: 62 };
    const OURS: Library = Library { machine: HERE, needs_libraries: false };

    fn with(interpreter: Option<&str>) -> Result<(), Refusal> {
        loads(&Program { machine: HERE, interpreter: interpreter.map(str::as_bytes) }, &OURS)
    }

    #[test]
    fn by_loader() {
        assert_eq!(with(Some("/lib64/ld-linux-x86-64.so.2\0")), Ok(()));
        assert_eq!(with(Some("/lib/ld-musl-x86_64.so.1")), Ok(()));
        assert_eq!(with(Some("/system/bin/linker64")), Err(Refusal::UnknownLoader));
        assert_eq!(with(Some("")), Err(Refusal::UnknownLoader));
        assert_eq!(with(None), Err(Refusal::Static));
        let musl = Program { machine: HERE, interpreter: Some(b"/lib/ld-musl-x86_64.so.1") };
        let needs = Library { needs_libraries: true, ..OURS };
        assert_eq!(loads(&musl, &needs), Err(Refusal::NeedsGlibc));
    }

    #[test]
    fn by_machine() {
        let x32 = Machine { is_64: false, ..HERE };
        let program = Program { machine: x32, interpreter: Some(b"/libx32/ld-linux-x32.so.2") };
        assert_eq!(loads(&program, &OURS), Err(Refusal::Machine));
    }

    #[test]
    fn by_rights() {
        let rights = |mode, has_capabilities| Rights { mode, uid: 0, gid: 7, has_capabilities };
        assert_eq!(gained(&rights(0o4755, false), 1000, 1000), Some(Gain::SetUid));
        assert_eq!(gained(&rights(0o4755, false), 0, 0), None);
        assert_eq!(gained(&rights(0o2755, false), 0, 0), Some(Gain::SetGid));
        assert_eq!(gained(&rights(0o2745, false), 0, 0), None);
        assert_eq!(gained(&rights(0o755, true), 1000, 1000), Some(Gain::Capabilities));
        assert_eq!(gained(&rights(0o755, true), 0, 0), None);
    }

    #[test]
    fn scripts() {
        assert_eq!(shebang(b"#! /bin/sh -e \nexit"), Some((&b"/bin/sh"[..], &b"-e"[..])));
        assert_eq!(shebang(b"#!/usr/bin/env"), Some((&b"/usr/bin/env"[..], &b""[..])));
        assert_eq!(shebang(b"#!\n/bin/sh"), None);
        assert_eq!(shebang(b"\x7fELF"), None);
    }
}
