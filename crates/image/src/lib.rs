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

/// The Go linker's note (elf(5), Nhdr), with the program's build ID: kind and name.
const GO_NOTE: (u32, &[u8]) = (4, b"Go\0\0");
/// The note of a program that is linked with glibc statically, or loaded by it: the oldest kernel it runs on.
const GLIBC_NOTE: (u32, &[u8]) = (1, b"GNU\0");

/// Whether one of these notes is the Go linker's.
pub fn has_go_note(notes: &[u8]) -> bool {
    has_note(notes, GO_NOTE)
}

fn has_note(mut notes: &[u8], wanted: (u32, &[u8])) -> bool {
    const HEAD: usize = 12;
    loop {
        let (Some(name_bytes), Some(text_bytes), Some(kind)) =
            (u32_at(notes, 0), u32_at(notes, 4), u32_at(notes, 8))
        else {
            return false;
        };
        let name = notes.get(HEAD..HEAD + wanted.1.len());
        if (kind, name) == (wanted.0, Some(wanted.1)) {
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

/// A program that no loader could give the library to, while somebody else can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alone {
    /// Of the Go linker's without anything of C (cgo), so that it has no libc: static, or loaded by glibc's loader
    /// and without libraries. Such a program makes its threads itself.
    Go,
    /// Static, and linked neither with glibc nor by the Go linker.
    Static,
}

/// Which of them the file of a program is, for x86-64. (glibc cancels threads wherever they are inside a call. A Go
/// program that is linked with a libc statically has words of threads, and one of Go's alone has none.)
/// `read` fills its buffer from an offset, or says that it cannot.
pub fn alone(mut read: impl FnMut(&mut [u8], u64) -> bool) -> Option<Alone> {
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
        return None;
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let (first, count) = (u64_at(&head, 32).unwrap_or(0), half(56));
    if half(18) != X86_64 || usize::from(half(54)) != HEADER_BYTES || count > MOST_HEADERS {
        return None;
    }
    let (mut is_go, mut is_glibcs_own, mut has_words) = (false, false, false);
    let (mut is_of_glibc, mut section) = (None, None);
    for nth in 0..u64::from(count) {
        let mut header = [0; HEADER_BYTES];
        if !read(&mut header, first.wrapping_add(nth * HEADER_BYTES as u64)) {
            return None;
        }
        let at = u64_at(&header, 8).unwrap_or(0);
        let len_bytes = u64_at(&header, 32).unwrap_or(0);
        let within = |most: usize| usize::try_from(len_bytes).map_or(most, |len| len.min(most));
        match u32_at(&header, 0).unwrap_or(0) {
            PT_TLS => has_words = true,
            PT_DYNAMIC => section = Some(section_at(&mut read, at, len_bytes)?),
            PT_INTERP => {
                let mut path = [0; MOST_PATH_BYTES];
                let path = &mut path[..within(MOST_PATH_BYTES)];
                is_of_glibc = Some(read(path, at) && is_glibcs(file_name(path)));
            }
            PT_NOTE => {
                let mut notes = [0; MOST_NOTE_BYTES];
                let notes = &mut notes[..within(MOST_NOTE_BYTES)];
                if !read(notes, at) {
                    return None;
                }
                is_go |= has_note(notes, GO_NOTE);
                is_glibcs_own |= has_note(notes, GLIBC_NOTE);
            }
            _ => {}
        }
    }
    match (is_of_glibc, section) {
        (None, None) if is_go => (!has_words).then_some(Alone::Go),
        (None, None) => (!is_glibcs_own).then_some(Alone::Static),
        // Loaders are no such programs.
        (None, Some(section)) if !is_go && !is_glibcs_own => {
            (section.is_program && !section.needs_libraries).then_some(Alone::Static)
        }
        (Some(true), Some(section)) if is_go => (!section.needs_libraries).then_some(Alone::Go),
        _ => None,
    }
}

struct Section {
    needs_libraries: bool,
    /// Made to be run wherever it lies (static-pie), not to be linked with.
    is_program: bool,
}

/// What a dynamic section (elf(5), Elf64_Dyn) of so many bytes says; `None` where it does not end.
fn section_at(
    mut read: impl FnMut(&mut [u8], u64) -> bool,
    at: u64,
    len_bytes: u64,
) -> Option<Section> {
    const DT_NULL: u64 = 0;
    const DT_NEEDED: u64 = 1;
    const DT_FLAGS_1: u64 = 0x6fff_fffb;
    const DF_1_PIE: u64 = 0x0800_0000;
    const MOST_ENTRIES: u64 = 128;
    let mut section = Section { needs_libraries: false, is_program: false };
    for nth in 0..(len_bytes / 16).min(MOST_ENTRIES) {
        let mut entry = [0; 16];
        if !read(&mut entry, at.wrapping_add(nth * 16)) {
            return None;
        }
        match (u64_at(&entry, 0)?, u64_at(&entry, 8)?) {
            (DT_NULL, _) => return Some(section),
            (DT_NEEDED, _) => section.needs_libraries = true,
            (DT_FLAGS_1, flags) => section.is_program = flags & DF_1_PIE != 0,
            _ => {}
        }
    }
    None
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
        kind(file) == Some(Alone::Go)
    }

    fn kind(file: &[u8]) -> Option<Alone> {
        alone(|to, at| {
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
        assert_eq!(kind(&program(2, &[(note, GNU_NOTE)])), Some(Alone::Static));
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
    fn alone_without_go() {
        const GLIBCS: &[u8] = b"\x04\0\0\0\x04\0\0\0\x01\0\0\0GNU\0abcd";
        let [note, words, loader, dynamic] = [4, 7, 3, 2];
        let static_one = |headers: &[(u32, &[u8])]| kind(&program(2, headers));
        assert_eq!(static_one(&[(1, b"text")]), Some(Alone::Static));
        assert_eq!(static_one(&[(words, b""), (note, GNU_NOTE)]), Some(Alone::Static));
        assert_eq!(static_one(&[(note, &[GNU_NOTE, GLIBCS].concat())]), None, "glibc's");
        assert_eq!(static_one(&[(loader, b"/lib/ld-musl-x86_64.so.1\0")]), None);
        let section = |entries: &[(u64, u64)]| -> std::vec::Vec<u8> {
            let words = entries.iter().flat_map(|(tag, value)| [*tag, *value]);
            words.flat_map(u64::to_le_bytes).collect()
        };
        let (end, pie) = ((0, 0), (0x6fff_fffb, 0x0800_0000));
        let moved = |entries: &[(u64, u64)]| kind(&program(3, &[(dynamic, &section(entries))]));
        assert_eq!(moved(&[(4, 5), pie, end]), Some(Alone::Static));
        assert_eq!(moved(&[(4, 5), end]), None, "a loader");
        assert_eq!(moved(&[pie, (1, 7), end]), None, "needs a library");
        assert_eq!(moved(&[pie]), None, "does not end");
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
