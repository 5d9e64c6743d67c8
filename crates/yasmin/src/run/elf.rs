//! What an ELF file says about how it will be loaded.

use std::fs::File;
use std::path::Path;

use object::elf;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use yasmin_image::{Alone, Library, Machine, Program};
use yasmin_text::sites::{self, Refusal, Site};
use yasmin_text::{Text, Unwind, go as text};

/// How a program is loaded, as far as preloading cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    pub machine: Machine,
    /// The dynamic loader it asks for; `None`: static.
    pub interpreter: Option<String>,
    /// It names libraries that must be loaded with it.
    pub needs_libraries: bool,
    /// Built by the Go toolchain.
    pub go: Option<Go>,
    /// Static, neither glibc's nor Go's: whether the library can be injected and sees all of its calls.
    pub alone: Option<Result<(), Refusal>>,
}

/// How a program of the Go toolchain's makes its system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Go {
    /// Linked with libc (cgo), by instructions that the library diverts.
    Diverted,
    /// Without anything of C: the library has to be injected, and then diverts them.
    Alone,
    /// Otherwise: past the library.
    Bare,
}

/// Reads `path`; `None` if it is no ELF file that makes sense.
pub fn read(path: &Path) -> Option<Image> {
    let cache = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&cache).ok()? {
        FileKind::Elf32 => parse::<elf::FileHeader32<Endianness>, _>(&cache),
        FileKind::Elf64 => parse::<elf::FileHeader64<Endianness>, _>(&cache),
        _ => None,
    }
}

fn parse<'data, Elf, R>(data: R) -> Option<Image>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let interpreter = segments.iter().find_map(|segment| {
        let path = segment.interpreter(endian, data).ok()??;
        Some(String::from_utf8_lossy(path).into_owned())
    });
    let dynamic = segments.iter().find_map(|segment| segment.dynamic(endian, data).ok()?);
    let is_needed = |entry: &Elf::Dyn| entry.d_tag(endian).into() == u64::from(elf::DT_NEEDED);
    let alone = yasmin_image::alone(|to, at| {
        let bytes = data.read_bytes_at(at, to.len() as u64);
        bytes.is_ok_and(|bytes| {
            to.copy_from_slice(bytes);
            true
        })
    });
    let is_go_alone = alone == Some(Alone::Go);
    let is_go = is_go_alone || has_section(header, endian, data, b".note.go.buildid");
    Some(Image {
        machine: Machine {
            is_64: header.is_type_64(),
            little_endian: header.is_little_endian(),
            architecture: header.e_machine(endian),
        },
        interpreter,
        needs_libraries: dynamic.unwrap_or_default().iter().any(is_needed),
        go: is_go.then(|| go(header, endian, data, segments, is_go_alone)),
        alone: (alone == Some(Alone::Static)).then(|| diverts(endian, data, segments)),
    })
}

/// By the same rule as the library.
fn diverts<'data, P, R>(endian: Endianness, data: R, segments: &'data [P]) -> Result<(), Refusal>
where
    P: ProgramHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    const SITES: usize = 1024;
    let is_kind = |kind: u32| move |segment: &&P| segment.p_type(endian) == kind;
    let loads = || segments.iter().filter(is_kind(elf::PT_LOAD));
    let mut texts = loads().filter(|segment| segment.p_flags(endian) & elf::PF_X != 0);
    let (Some(segment), None) = (texts.next(), texts.next()) else { return Err(Refusal::Unclear) };
    let table = segments.iter().find(is_kind(elf::PT_GNU_EH_FRAME));
    let unwind = table.and_then(|table| {
        let table = table.p_vaddr(endian).into();
        let around = loads().find(|segment| {
            let first: u64 = segment.p_vaddr(endian).into();
            table >= first && table - first < segment.p_filesz(endian).into()
        })?;
        Unwind::new(around.data(endian, data).ok()?, around.p_vaddr(endian).into(), table)
    });
    let code = segment.data(endian, data).map_err(|()| Refusal::Unclear)?;
    let text = Text { code, address: segment.p_vaddr(endian).into(), unwind };
    let mut found = [Site::NONE; SITES];
    sites::all(&text, &mut vec![0; sites::ROOM], &mut found).map(|_| ())
}

/// By the same rule as the library: libc makes the program's threads, and the function that all packages
/// call is known.
fn go<'data, Elf, R>(
    header: &Elf,
    endian: Endianness,
    data: R,
    segments: &'data [Elf::ProgramHeader],
    is_alone: bool,
) -> Go
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let makes_threads = || -> Option<bool> {
        let sections = header.sections(endian, data).ok()?;
        let symbols = sections.symbols(endian, data, elf::SHT_DYNSYM).ok()?;
        Some(symbols.iter().any(|symbol| {
            let name = symbol.name(endian, symbols.strings());
            symbol.is_undefined(endian) && name.is_ok_and(|name| name == b"pthread_create")
        }))
    };
    let has = |is_there: fn(&[u8]) -> bool| {
        segments
            .iter()
            .filter(|segment| segment.p_flags(endian) & elf::PF_X != 0)
            .filter_map(|segment| segment.data(endian, data).ok())
            .any(is_there)
    };
    match (is_alone, has(text::is_known)) {
        (true, true) if has(text::makes_threads) => Go::Alone,
        (false, true) if makes_threads() == Some(true) => Go::Diverted,
        _ => Go::Bare,
    }
}

/// A file stripped of its section table has none; that costs only the hint.
fn has_section<'data, Elf, R>(header: &Elf, endian: Endianness, data: R, name: &[u8]) -> bool
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let Ok(sections) = header.sections(endian, data) else { return false };
    sections
        .iter()
        .any(|section| sections.section_name(endian, section).is_ok_and(|found| found == name))
}

impl Image {
    pub fn as_program(&self) -> Program<'_> {
        let interpreter = self.interpreter.as_deref().map(str::as_bytes);
        Program { machine: self.machine, interpreter }
    }

    pub fn as_library(&self) -> Library {
        Library { machine: self.machine, needs_libraries: self.needs_libraries }
    }
}

/// As people name it.
pub fn name(machine: Machine) -> String {
    let bits = if machine.is_64 { 64 } else { 32 };
    match machine.architecture {
        elf::EM_386 => "i386".to_owned(),
        elf::EM_X86_64 if machine.is_64 => "x86-64".to_owned(),
        elf::EM_X86_64 => "x32".to_owned(),
        elf::EM_AARCH64 => "aarch64".to_owned(),
        elf::EM_ARM => "arm".to_owned(),
        elf::EM_RISCV => format!("riscv{bits}"),
        other => format!("{bits}-bit machine {other}"),
    }
}
