//! Which programs get the library, and how.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, ensure};
use libc::user_regs_struct as Registers;

use crate::library::{Library, Part};
use crate::thread::Stopped;

const PAGE: usize = 4096;

/// Maps `library` into the stopped program. What its first thread is to go on with.
///
/// # Errors
/// The program is none that can have it; the system's.
pub fn inject(stopped: &mut Stopped, library: &Path) -> anyhow::Result<Registers> {
    let executable = File::open(format!("/proc/{}/exe", stopped.process))?;
    let read = |to: &mut [u8], at: u64| executable.read_exact_at(to, at).is_ok();
    ensure!(yasmin_image::alone(read).is_some(), "a loader has to give it the library");
    ensure!(stopped.auxiliary(libc::AT_SECURE) == Some(0), "it gains rights");
    let path = stopped.registers.rsp - 2 * PAGE as u64;
    let mut name = library.as_os_str().as_bytes().to_vec();
    name.push(0);
    ensure!(name.len() < PAGE, "the library's path is too long");
    stopped.write(path, &name)?;
    let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as u64;
    let fd = stopped.call(libc::SYS_openat, [libc::AT_FDCWD as u64, path, flags, 0, 0, 0])?;
    // What it has opened, whatever the name means here.
    let file = File::open(format!("/proc/{}/fd/{fd}", stopped.process));
    // SAFETY: whoever changes an installed library in place ends all programs that have it.
    let file = file.and_then(|file| unsafe { memmap2::Mmap::map(&file) });
    let mapped = file.context("the library").and_then(|file| map(stopped, &file, fd));
    stopped.call(libc::SYS_close, [fd, 0, 0, 0, 0, 0])?;
    let begin = mapped?;
    Ok(Registers { rip: begin, r13: stopped.registers.rip, ..stopped.registers })
}

/// The library's memory in the program; where to begin.
fn map(stopped: &mut Stopped, file: &[u8], fd: u64) -> anyhow::Result<u64> {
    const NOWHERE: u64 = u64::MAX;
    let library = Library::parse(file)?;
    let len = library.len_bytes;
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
    let none = libc::PROT_NONE as u64;
    let base = stopped.call(libc::SYS_mmap, [0, len, none, private, NOWHERE, 0])?;
    let filled = fill(stopped, &library, base, file, fd);
    if filled.is_err() {
        stopped.call(libc::SYS_munmap, [base, len, 0, 0, 0, 0])?;
    }
    filled
}

fn fill(
    stopped: &mut Stopped,
    library: &Library<'_>,
    base: u64,
    file: &[u8],
    fd: u64,
) -> anyhow::Result<u64> {
    let (image, begin) = library.image(base)?;
    for part in &library.parts {
        map_part(stopped, part, base, fd)?;
        write_changes(stopped, part, base, file, &image)?;
    }
    Ok(begin)
}

fn map_part(stopped: &mut Stopped, part: &Part, base: u64, fd: u64) -> anyhow::Result<()> {
    let fixed = (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64;
    let anonymous = fixed | libc::MAP_ANONYMOUS as u64;
    let whole = |bytes: u64| bytes.next_multiple_of(PAGE as u64);
    let (of_file, of_all) = (whole(part.file_bytes), whole(part.memory_bytes));
    let (at, protection) = (base + part.address, part.protection);
    if of_file > 0 {
        stopped.call(libc::SYS_mmap, [at, of_file, protection, fixed, fd, part.offset])?;
    }
    if of_all > of_file {
        let (at, len) = (at + of_file, of_all - of_file);
        stopped.call(libc::SYS_mmap, [at, len, protection, anonymous, u64::MAX, 0])?;
    }
    Ok(())
}

/// Writes each page that is not as the file has it.
fn write_changes(
    stopped: &Stopped,
    part: &Part,
    base: u64,
    file: &[u8],
    image: &[u8],
) -> anyhow::Result<()> {
    let (first, len) = (part.address as usize, part.memory_bytes as usize);
    let wanted = image.get(first..(first + len).next_multiple_of(PAGE)).context("a part")?;
    for (nth, page) in wanted.chunks(PAGE).enumerate() {
        let offset = part.offset as usize + nth * PAGE;
        let is_mapped = nth * PAGE < (part.file_bytes as usize).next_multiple_of(PAGE);
        // Behind the file's end there are zeros.
        let there = file.get(offset..).unwrap_or_default();
        let there = &there[..there.len().min(PAGE)];
        let is_there = |at: usize| if is_mapped { there.get(at).copied().unwrap_or(0) } else { 0 };
        if page.iter().enumerate().any(|(at, byte)| *byte != is_there(at)) {
            stopped.write(base + (first + nth * PAGE) as u64, page)?;
        }
    }
    Ok(())
}
