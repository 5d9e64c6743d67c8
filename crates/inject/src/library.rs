//! The library as it has to be in a program without a loader (elf(5), the x86-64 psABI).

use anyhow::{Context, bail, ensure};
use object::Endianness;
use object::elf::{self, FileHeader64, ProgramHeader64, Rela64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Rela, Sym, SymbolTable};

const PAGE: u64 = 4096;
/// What `Bare` in crates/preload/src/injected.rs begins with, in words: where to begin, uses of the thread's
/// block from and to, bytes of that, and a function for each of LINKED.
const HEAD_WORDS: usize = 4;
const LINKED: [&[u8]; 6] =
    [b"memcpy", b"memmove", b"memset", b"bcmp", b"strlen", b"__errno_location"];
/// The prefixes of instructions that go by fs and gs.
const BY_FS: u8 = 0x64;
const BY_GS: u8 = 0x65;

/// A part of the file that is mapped: whole pages.
pub struct Part {
    pub address: u64,
    pub offset: u64,
    pub file_bytes: u64,
    /// Behind the file's bytes there are zeros.
    pub memory_bytes: u64,
    /// PROT_READ and so on (mmap(2)).
    pub protection: u64,
}

pub struct Library<'data> {
    file: &'data [u8],
    header: &'data FileHeader64<Endianness>,
    endian: Endianness,
    pub parts: Vec<Part>,
    /// Bytes from the first address to behind the last, whole pages.
    pub len_bytes: u64,
}

impl<'data> Library<'data> {
    /// # Errors
    /// It is no library of this kind.
    pub fn parse(file: &'data [u8]) -> anyhow::Result<Self> {
        let header = FileHeader64::<Endianness>::parse(file)?;
        let endian = header.endian()?;
        let parts: Vec<Part> = header
            .program_headers(endian, file)?
            .iter()
            .filter(|one| one.p_type(endian) == elf::PT_LOAD)
            .map(|one| part(one, endian))
            .collect();
        let end = parts.iter().map(|part| part.address + part.memory_bytes).max();
        let len_bytes = end.context("nothing to load")?.next_multiple_of(PAGE);
        ensure!(len_bytes < 1 << 30, "too large");
        Ok(Self { file, header, endian, parts, len_bytes })
    }

    /// All of its memory as it has to be at `base`, and where the program begins with it.
    ///
    /// # Errors
    /// It is not the library that this program belongs to.
    pub fn image(&self, base: u64) -> anyhow::Result<(Vec<u8>, u64)> {
        let mut image = vec![0; self.len_bytes as usize];
        for part in &self.parts {
            let from = self.file.get(part.offset as usize..).context("offset")?;
            let len = (part.file_bytes as usize).min(from.len());
            put(&mut image, part.address, &from[..len])?;
        }
        let sections = self.header.sections(self.endian, self.file)?;
        let symbols = sections.symbols(self.endian, self.file, elf::SHT_DYNSYM)?;
        let table = find(&symbols, self.endian, b"yasmin_bare").context("yasmin_bare")?;
        let relocations = self.relocations()?;
        // The table's own words first: others need them.
        for rela in &relocations {
            if rela.r_type(self.endian, false) == elf::R_X86_64_RELATIVE {
                let value = base.wrapping_add_signed(rela.r_addend.get(self.endian));
                put(&mut image, rela.r_offset.get(self.endian), &value.to_le_bytes())?;
            }
        }
        let thread_bytes = self.thread_bytes()?;
        let words: Vec<u64> = (0..HEAD_WORDS + LINKED.len())
            .map(|at| word(&image, table + 8 * at as u64))
            .collect::<anyhow::Result<_>>()?;
        ensure!(thread_bytes <= words[3], "the thread's words need {thread_bytes} bytes");
        for rela in &relocations {
            let kind = rela.r_type(self.endian, false);
            let addend = rela.r_addend.get(self.endian);
            let index = rela.symbol(self.endian, false);
            let value = match kind {
                elf::R_X86_64_RELATIVE => continue,
                elf::R_X86_64_TPOFF64 => {
                    let own = index.map_or(Ok(0), |at| {
                        anyhow::Ok(symbols.symbol(at)?.st_value(self.endian))
                    })?;
                    own.wrapping_add_signed(addend).wrapping_sub(thread_bytes)
                }
                elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_64 => {
                    let symbol = symbols.symbol(index.context("no symbol")?)?;
                    let name = symbol.name(self.endian, symbols.strings())?;
                    match LINKED.iter().position(|linked| *linked == name) {
                        _ if !symbol.is_undefined(self.endian) => {
                            let value = base.wrapping_add(symbol.st_value(self.endian));
                            value.wrapping_add_signed(addend)
                        }
                        Some(at) => words[HEAD_WORDS + at],
                        None if symbol.st_bind() == elf::STB_WEAK => 0,
                        None => bail!("nobody has {}", String::from_utf8_lossy(name)),
                    }
                }
                other => bail!("relocation {other}"),
            };
            put(&mut image, rela.r_offset.get(self.endian), &value.to_le_bytes())?;
        }
        self.go_by_gs(&mut image, words[1].wrapping_sub(base), words[2].wrapping_sub(base))?;
        Ok((image, words[0]))
    }

    fn go_by_gs(&self, image: &mut [u8], first: u64, behind: u64) -> anyhow::Result<()> {
        for at in (first..behind).step_by(4) {
            let bytes = image.get(at as usize..at as usize + 4).context("uses")?;
            let distance = i32::from_le_bytes(bytes.try_into()?);
            let prefix = at.wrapping_add_signed(distance.into()) as usize;
            let prefix = image.get_mut(prefix).filter(|byte| **byte == BY_FS).context("prefix")?;
            *prefix = BY_GS;
        }
        Ok(())
    }

    fn relocations(&self) -> anyhow::Result<Vec<Rela64<Endianness>>> {
        let segments = self.header.program_headers(self.endian, self.file)?;
        let dynamic = segments.iter().find_map(|it| it.dynamic(self.endian, self.file).transpose());
        let dynamic = dynamic.context("no dynamic section")??;
        let value = |tag: u32| {
            let entry = dynamic.iter().find(|entry| entry.tag32(self.endian) == Some(tag));
            entry.map_or(0, |entry| entry.d_val(self.endian))
        };
        let mut all = vec![];
        for (at, len) in [(elf::DT_RELA, elf::DT_RELASZ), (elf::DT_JMPREL, elf::DT_PLTRELSZ)] {
            // Addresses of what is mapped as it lies in the file.
            let (at, len) = (value(at), value(len));
            let holds = |part: &&Part| (part.address..part.address + part.file_bytes).contains(&at);
            let Some(part) = self.parts.iter().find(holds) else {
                ensure!(len == 0, "relocations");
                continue;
            };
            let from = (part.offset + at - part.address) as usize;
            let bytes = self.file.get(from..from + len as usize).context("relocations")?;
            let count = bytes.len() / size_of::<Rela64<Endianness>>();
            let (found, _) = object::slice_from_bytes::<Rela64<Endianness>>(bytes, count)
                .map_err(|()| anyhow::anyhow!("relocations"))?;
            all.extend_from_slice(found);
        }
        Ok(all)
    }

    /// Bytes of a thread's words, all zero at first.
    fn thread_bytes(&self) -> anyhow::Result<u64> {
        let segments = self.header.program_headers(self.endian, self.file)?;
        let Some(own) = segments.iter().find(|it| it.p_type(self.endian) == elf::PT_TLS) else {
            return Ok(0);
        };
        ensure!(own.p_filesz(self.endian) == 0, "words of threads that are not 0");
        let align = own.p_align(self.endian).max(1);
        ensure!(align <= 64, "words of threads that are aligned to {align} bytes");
        Ok(own.p_memsz(self.endian).next_multiple_of(align))
    }
}

fn part(header: &ProgramHeader64<Endianness>, endian: Endianness) -> Part {
    let lead = header.p_vaddr(endian) % PAGE;
    let flags = header.p_flags(endian);
    let protection =
        [(elf::PF_R, libc::PROT_READ), (elf::PF_W, libc::PROT_WRITE), (elf::PF_X, libc::PROT_EXEC)]
            .iter()
            .filter(|(flag, _)| flags & flag != 0)
            .fold(0, |all, (_, one)| all | *one as u64);
    Part {
        address: header.p_vaddr(endian) - lead,
        offset: header.p_offset(endian).wrapping_sub(lead),
        file_bytes: header.p_filesz(endian) + lead,
        memory_bytes: header.p_memsz(endian) + lead,
        protection,
    }
}

fn find(
    symbols: &SymbolTable<'_, FileHeader64<Endianness>>,
    endian: Endianness,
    name: &[u8],
) -> Option<u64> {
    let strings = symbols.strings();
    let is_it = |it: &&elf::Sym64<Endianness>| {
        !it.is_undefined(endian) && it.name(endian, strings).is_ok_and(|found| found == name)
    };
    symbols.iter().find(is_it).map(|it| it.st_value(endian))
}

fn put(image: &mut [u8], at: u64, bytes: &[u8]) -> anyhow::Result<()> {
    let to = image.get_mut(at as usize..).and_then(|rest| rest.get_mut(..bytes.len()));
    to.context("outside the library")?.copy_from_slice(bytes);
    Ok(())
}

fn word(image: &[u8], at: u64) -> anyhow::Result<u64> {
    let bytes = image.get(at as usize..).and_then(|rest| rest.first_chunk());
    Ok(u64::from_le_bytes(*bytes.context("outside the library")?))
}
