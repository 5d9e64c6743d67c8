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
    let name = file_name(interpreter);
    if name.starts_with(b"ld-musl-") {
        return if library.needs_libraries { Err(Refusal::NeedsGlibc) } else { Ok(()) };
    }
    if is_glibcs(name) { Ok(()) } else { Err(Refusal::UnknownLoader) }
}

/// Whether one of these notes (elf(5), Nhdr) is the Go linker's, with the program's build ID.
pub fn has_go_note(mut notes: &[u8]) -> bool {
    const HEAD: usize = 12;
    const GO: (u32, &[u8]) = (4, b"Go\0\0");
    loop {
        let (Some(name_bytes), Some(text_bytes), Some(kind)) =
            (u32_at(notes, 0), u32_at(notes, 4), u32_at(notes, 8))
        else {
            return false;
        };
        let name = notes.get(HEAD..HEAD + GO.1.len());
        if (kind, name) == (GO.0, Some(GO.1)) {
            return true;
        }
        let padded = |bytes: u32| (bytes as usize).next_multiple_of(4);
        match notes.get(HEAD + padded(name_bytes) + padded(text_bytes)..) {
            Some(rest) => notes = rest,
            None => return false,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Whether a file is a program of the Go linker's for x86-64 without anything of C (cgo), so that it has no
/// libc: static, or loaded by glibc's loader and without libraries. Such a program makes its threads itself.
/// One that is linked with libc statically has words of threads, and a static one of Go's alone has none.
/// `read` fills its buffer from an offset, or says that it cannot.
pub fn is_go_alone(mut read: impl FnMut(&mut [u8], u64) -> bool) -> bool {
    const HEAD: &[u8] = b"\x7fELF\x02\x01";
    const X86_64: u16 = 62;
    const HEADER_BYTES: usize = 56;
    const PT_DYNAMIC: u32 = 2;
    const PT_INTERP: u32 = 3;
    const PT_NOTE: u32 = 4;
    const PT_TLS: u32 = 7;
    const MOST_HEADERS: u16 = 128;
    const MOST_NOTE_BYTES: usize = 512;
    const MOST_PATH_BYTES: usize = 128;
    let mut head = [0; 64];
    if !read(&mut head, 0) || !head.starts_with(HEAD) {
        return false;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (first, count) = (u64_at(&head, 32).unwrap_or(0), half(56));
    if half(18) != X86_64 || usize::from(half(54)) != HEADER_BYTES || count > MOST_HEADERS {
        return false;
    }
    let (mut is_go, mut has_words) = (false, false);
    let (mut is_of_glibc, mut needs) = (None, None);
    for nth in 0..u64::from(count) {
        let mut header = [0; HEADER_BYTES];
        if !read(&mut header, first.wrapping_add(nth * HEADER_BYTES as u64)) {
            return false;
        }
        let at = u64_at(&header, 8).unwrap_or(0);
        let len_bytes = u64_at(&header, 32).unwrap_or(0);
        let within = |most: usize| usize::try_from(len_bytes).map_or(most, |len| len.min(most));
        match u32_at(&header, 0).unwrap_or(0) {
            PT_TLS => has_words = true,
            PT_DYNAMIC => needs = Some(needs_libraries(&mut read, at, len_bytes)),
            PT_INTERP => {
                let mut path = [0; MOST_PATH_BYTES];
                let path = &mut path[..within(MOST_PATH_BYTES)];
                is_of_glibc = Some(read(path, at) && is_glibcs(file_name(path)));
            }
            PT_NOTE => {
                let mut notes = [0; MOST_NOTE_BYTES];
                let notes = &mut notes[..within(MOST_NOTE_BYTES)];
                is_go |= read(notes, at) && has_go_note(notes);
            }
            _ => {}
        }
    }
    is_go
        && match (is_of_glibc, needs) {
            (None, None) => !has_words,
            (Some(true), Some(needs)) => !needs,
            _ => false,
        }
}

/// By a dynamic section (elf(5), Elf64_Dyn) of so many bytes. True too where it does not end.
fn needs_libraries(mut read: impl FnMut(&mut [u8], u64) -> bool, at: u64, len_bytes: u64) -> bool {
    const DT_NULL: u64 = 0;
    const DT_NEEDED: u64 = 1;
    const MOST_ENTRIES: u64 = 128;
    for nth in 0..(len_bytes / 16).min(MOST_ENTRIES) {
        let mut entry = [0; 16];
        if !read(&mut entry, at.wrapping_add(nth * 16)) {
            return true;
        }
        match u64_at(&entry, 0).unwrap_or(DT_NEEDED) {
            DT_NULL => return false,
            DT_NEEDED => return true,
            _ => {}
        }
    }
    true
}

/// Of a path, with or without the zero behind it.
fn file_name(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"\0").unwrap_or(path);
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn is_glibcs(loader: &[u8]) -> bool {
    loader.starts_with(b"ld-linux") || loader.starts_with(b"ld64.so")
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

    /// A file with these program headers, kind and bytes of the file, one behind the other.
    fn program(kind: u16, headers: &[(u32, &[u8])]) -> std::vec::Vec<u8> {
        let mut file = std::vec![0; 64 + 56 * headers.len()];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[16..18].copy_from_slice(&kind.to_le_bytes());
        file[18] = 62;
        file[32] = 64;
        file[54] = 56;
        file[56] = headers.len() as u8;
        for (nth, (kind, bytes)) in headers.iter().enumerate() {
            let (at, offset) = (64 + 56 * nth, file.len() as u64);
            file[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&offset.to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            file.extend_from_slice(bytes);
        }
        file
    }

    fn is_it(file: &[u8]) -> bool {
        is_go_alone(|to, at| {
            let from = usize::try_from(at).ok().and_then(|at| file.get(at..)?.get(..to.len()));
            from.is_some_and(|from| {
                to.copy_from_slice(from);
                true
            })
        })
    }

    const GO_NOTE: &[u8] = b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd";
    const GNU_NOTE: &[u8] = b"\x04\0\0\0\x03\0\0\0\x03\0\0\0GNU\0abc\0";

    #[test]
    fn go_alone() {
        let [note, words, loader, dynamic] = [4, 7, 3, 2];
        let both = [GNU_NOTE, GO_NOTE].concat();
        assert!(is_it(&program(2, &[(1, b"text"), (note, &both)])));
        assert!(!is_it(&program(2, &[(note, GNU_NOTE)])), "another language");
        assert!(!is_it(&program(2, &[(note, GO_NOTE), (words, b"")])), "with libc");
        let section = |tags: &[u64]| -> std::vec::Vec<u8> {
            tags.iter().flat_map(|tag| [tag.to_le_bytes(), [7; 8]].concat()).collect()
        };
        let (alone, needs, endless) = (section(&[4, 5, 0, 1]), section(&[4, 1, 0]), section(&[4]));
        let loaded = |path: &[u8], section: &[u8]| {
            let headers = [(note, GO_NOTE), (loader, path), (words, b""), (dynamic, section)];
            is_it(&program(3, &headers))
        };
        let glibc = b"/lib64/ld-linux-x86-64.so.2\0";
        assert!(loaded(glibc, &alone));
        assert!(!loaded(glibc, &needs), "with libc");
        assert!(!loaded(glibc, &endless));
        assert!(!loaded(b"/lib/ld-musl-x86_64.so.1\0", &alone), "its loader is a libc");
        assert!(!is_it(&program(3, &[(note, GO_NOTE), (dynamic, &alone)])), "loads itself");
        let whole = program(2, &[(note, GO_NOTE)]);
        for len in 0..whole.len() {
            assert!(!is_it(&whole[..len]), "{len} bytes of it");
        }
    }

    #[test]
    fn notes_that_lie() {
        for len in [u32::MAX, 1 << 31, 13, 4] {
            let note =
                [&len.to_le_bytes(), &len.to_le_bytes(), &[4, 0, 0, 0][..], b"No\0\0"].concat();
            assert!(!has_go_note(&note), "{len}");
        }
    }

    #[test]
    fn scripts() {
        assert_eq!(shebang(b"#! /bin/sh -e \nexit"), Some((&b"/bin/sh"[..], &b"-e"[..])));
        assert_eq!(shebang(b"#!/usr/bin/env"), Some((&b"/usr/bin/env"[..], &b""[..])));
        assert_eq!(shebang(b"#!\n/bin/sh"), None);
        assert_eq!(shebang(b"\x7fELF"), None);
    }
}
