//! Objects whose calls the dynamic linker binds to libc, past this library.
//!
//! It does so for what is loaded with RTLD_DEEPBIND, as PHP loads its extensions: such an object looks for a
//! name in itself and in what it needs first, and libc is among that. What it would find in libc, and
//! this library stands in front of, is bound to this library's entry, as it is for all others.
//!
//! Storey 4: life.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::object::{Header, PT_DYNAMIC, PT_GNU_RELRO};
use crate::sys::call;

/// Elf64_Dyn: a tag and its value.
type Entry = [usize; 2];

const DT_PLTRELSZ: usize = 2;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_RELA: usize = 7;
const DT_RELASZ: usize = 8;
const DT_JMPREL: usize = 23;
const DT_GNU_HASH: usize = 0x6fff_fef5;

const R_X86_64_64: u64 = 1;
const R_X86_64_GLOB_DAT: u64 = 6;
const R_X86_64_JUMP_SLOT: u64 = 7;

const PAGE: usize = 4096;
const PROT_READ: usize = 1;
const PROT_WRITE: usize = 2;

/// Elf64_Rela.
#[repr(C)]
struct Relocation {
    offset: usize,
    info: u64,
    addend: usize,
}

/// Elf64_Sym.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

unsafe extern "C" {
    #[link_name = "_DYNAMIC"]
    static OWN: Entry;
    #[link_name = "__ehdr_start"]
    static OWN_BASE: u8;
}

/// The addresses of libc, from the first to behind the last; 0: not seen yet.
static LIBC: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

/// `headers` are libc's.
pub fn libc_is_at(base: usize, headers: &[Header]) {
    let ends = |header: &Header| base.wrapping_add(header.address + header.memory_bytes);
    let end = headers.iter().filter(|header| header.kind == crate::object::PT_LOAD).map(ends).max();
    LIBC[0].store(base, Ordering::Relaxed);
    LIBC[1].store(end.unwrap_or(base), Ordering::Relaxed);
}

/// An object's symbols and what it imports by them.
struct Dynamic {
    base: usize,
    entries: *const Entry,
}

impl Dynamic {
    fn value(&self, tag: usize) -> Option<usize> {
        let mut at = self.entries;
        loop {
            // SAFETY: the section ends with a tag of 0.
            match unsafe { *at } {
                [0, _] => return None,
                [found, value] if found == tag => return Some(value),
                _ => at = at.wrapping_add(1),
            }
        }
    }

    /// glibc adds the base to what it finds there, but not where it cannot write.
    fn address(&self, tag: usize) -> Option<usize> {
        let value = self.value(tag)?;
        Some(if value < self.base { self.base + value } else { value })
    }

    fn relocations(&self, table: usize, size: usize) -> &[Relocation] {
        let (Some(at), Some(bytes)) = (self.address(table), self.value(size)) else { return &[] };
        // SAFETY: the object's own table, as it says.
        unsafe { core::slice::from_raw_parts(at as *const _, bytes / size_of::<Relocation>()) }
    }

    fn symbol(&self, index: usize) -> Option<&Symbol> {
        // SAFETY: an index that the object's own tables give.
        Some(unsafe { &*(self.address(DT_SYMTAB)? as *const Symbol).add(index) })
    }

    fn name(&self, symbol: &Symbol) -> Option<&CStr> {
        let names = self.address(DT_STRTAB)?;
        // SAFETY: a place in the object's own strings, NUL-terminated.
        Some(unsafe { CStr::from_ptr((names + symbol.name as usize) as *const _) })
    }

    /// Where it defines `name`, by its hash table (DT_GNU_HASH: four words, a filter, the heads of the
    /// chains, and a hash for each symbol, whose last bit ends a chain).
    fn definition(&self, name: &CStr) -> Option<usize> {
        let table = self.address(DT_GNU_HASH)? as *const u32;
        // SAFETY: the layout of the table, here and below.
        let word = |at: usize| unsafe { *table.add(at) };
        let (heads, first, filter) = (word(0), word(1) as usize, word(2) as usize);
        let heads_at = 4 + filter * 2;
        let chains_at = heads_at + heads as usize;
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let mut index = word(heads_at + hash.checked_rem(heads)? as usize) as usize;
        if index < first {
            return None;
        }
        loop {
            let other = word(chains_at + index - first);
            let symbol = self.symbol(index)?;
            if other | 1 == hash | 1 && symbol.section != 0 && self.name(symbol)? == name {
                return Some(self.base + symbol.value);
            }
            if other & 1 != 0 {
                return None;
            }
            index += 1;
        }
    }
}

/// What the object that is loaded at `base` has from libc, or will have, it gets from this library. False:
/// it may have something all the same.
///
/// # Safety
/// The dynamic linker shows the object right now.
pub unsafe fn turn(base: usize, headers: &[Header]) -> bool {
    let Some(dynamic) = headers.iter().find(|header| header.kind == PT_DYNAMIC) else {
        return true;
    };
    let object = Dynamic { base, entries: base.wrapping_add(dynamic.address) as *const Entry };
    let own = Dynamic { base: &raw const OWN_BASE as usize, entries: &raw const OWN };
    let libc = LIBC[0].load(Ordering::Relaxed)..LIBC[1].load(Ordering::Relaxed);
    if libc.is_empty() {
        return false;
    }
    let by_slot = object.relocations(DT_JMPREL, DT_PLTRELSZ).iter();
    for one in by_slot.chain(object.relocations(DT_RELA, DT_RELASZ)) {
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
            .filter(|symbol| symbol.section == 0)
            .and_then(|symbol| object.name(symbol))
            .and_then(|name| own.definition(name));
        let Some(entry) = entry else { continue };
        // SAFETY: as above.
        if !unsafe { put(slot, entry, base, headers) } {
            return false;
        }
    }
    true
}

/// # Safety
/// A slot of the object's.
unsafe fn put(slot: *mut usize, entry: usize, base: usize, headers: &[Header]) -> bool {
    let is_sealed =
        |header: &Header| header.kind == PT_GNU_RELRO && header.is_around(base, slot as usize);
    let page = slot as usize & !(PAGE - 1);
    // SAFETY: the page of the slot, which stays readable.
    let protect = |rights: usize| unsafe { call!(mprotect, page, PAGE, rights) } == 0;
    let is_sealed = headers.iter().any(is_sealed);
    if is_sealed && !protect(PROT_READ | PROT_WRITE) {
        return false;
    }
    // SAFETY: the caller vouches for it; whoever calls by it meanwhile calls the one or the other.
    unsafe { slot.write_volatile(entry) };
    !is_sealed || protect(PROT_READ)
}
