//! Objects whose calls the dynamic linker binds to libc, past this library.
//!
//! It does so for what is loaded with RTLD_DEEPBIND, as PHP loads its extensions: such an object looks for a
//! name in itself and in what it needs first, and libc is among that. What it would find in libc, and
//! this library stands in front of, is bound to this library's entry, as it is for all others.
//!
//! Storey 4: life.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::object::{self, Dynamic, Header, PT_LOAD};

const DT_PLTRELSZ: usize = 2;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;

const R_X86_64_64: u64 = 1;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

/// Elf64_Rela.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: usize,
}

/// The addresses of libc, from the first to behind the last; 0: not seen yet.
static LIBC: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// `headers` are libc's.
pub fn libc_is_at(base: usize, headers: &[Header]) {
    let ends = |header: &Header| base.wrapping_add(header.address + header.memory_bytes);
    let end = headers.iter().filter(|header| header.kind == PT_LOAD).map(ends).max();
    LIBC[0].store(base, Ordering::Relaxed);
    LIBC[1].store(end.unwrap_or(base), Ordering::Relaxed);
}

fn relocations(object: &Dynamic, table: usize, size: usize) -> &[Relocation] {
    let (Some(at), Some(bytes)) = (object.address(table), object.value(size)) else { return &[] };
    // SAFETY: the object's own table, as it says.
    unsafe { core::slice::from_raw_parts(at as *const _, bytes / size_of::<Relocation>()) }
}

/// What the object that is loaded at `base` has from libc, or will have, it gets from this library. False:
/// it may have something all the same.
///
/// # Safety
/// The dynamic linker shows the object right now.
pub unsafe fn turn(base: usize, headers: &[Header]) -> bool {
    // SAFETY: the caller vouches for it.
    let Some(object) = (unsafe { Dynamic::of(base, headers) }) else { return true };
    let own = Dynamic::own();
    let libc = LIBC[0].load(Ordering::Relaxed)..LIBC[1].load(Ordering::Relaxed);
    if libc.is_empty() {
        return false;
    }
    let by_slot = relocations(&object, DT_JMPREL, DT_PLTRELSZ).iter();
    for one in by_slot.chain(relocations(&object, DT_RELA, DT_RELASZ)) {
        let kind = one.info & 0xffff_ffff;
        if ![R_X86_64_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT].contains(&kind) {
            continue;
        }
        let slot = base.wrapping_add(one.offset) as *mut usize;
        // SAFETY: a word of the object's, which the linker has filled in.
        let bound = unsafe { slot.read_volatile() };
        // One that was not called yet leads into the object itself.
        let is_open = headers.iter().any(|header| header.holds(base, bound));
        if !is_open && !libc.contains(&bound) {
            continue;
        }
        let entry = object
            .symbol((one.info >> 32) as usize)
            .filter(|symbol| !symbol.is_defined())
            .and_then(|symbol| object.name(symbol))
            .and_then(|name| own.definition(name));
        let Some(entry) = entry else { continue };
        // SAFETY: as above.
        if !unsafe { object::put(&[(slot, entry)], base, headers) } {
            return false;
        }
    }
    true
}
