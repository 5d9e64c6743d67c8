//! A loaded object, as the dynamic linker shows it (dl_iterate_phdr, elf(5)).
//!
//! Storey 1: system.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::sys::call;
use crate::{bare, real};

#[derive(Clone, Copy)]
#[repr(C)]
pub struct Object {
    pub base: usize,
    pub name: *const c_char,
    pub headers: *const Header,
    pub count: u16,
}

impl Object {
    /// # Safety
    /// The linker shows it right now.
    pub unsafe fn headers<'a>(&self) -> &'a [Header] {
        if self.headers.is_null() {
            return &[];
        }
        // SAFETY: the object's program headers.
        unsafe { core::slice::from_raw_parts(self.headers, usize::from(self.count)) }
    }
}

pub type Visit = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;

/// libc's dl_iterate_phdr: a program may have one of its own.
static ITERATE: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks up what `each` needs, where the dynamic linker may be called.
pub fn start() {
    ITERATE.store(real::next(b"dl_iterate_phdr\0"), Ordering::Relaxed);
}

/// Shows each object to `visit`, until that says other than 0. False: it cannot yet.
pub fn each(visit: Visit, data: *mut c_void) -> bool {
    if bare::is() {
        each_bare(visit, data);
        return true;
    }
    let Some(iterate) = iterate() else { return false };
    // SAFETY: `visit` gets `data` back.
    unsafe { iterate(visit, data) };
    true
}

/// struct dl_phdr_info, of which `Object` has the first members.
const INFO_BYTES: usize = 64;

/// Shows each object to a visitor of the program's, this library last: the runtime of a sanitizer ends a program in which it is
/// not the first one. What the visitor said.
///
/// # Safety
/// As for dl_iterate_phdr.
pub unsafe fn each_own_last(visit: Visit, data: *mut c_void) -> c_int {
    struct Walk {
        visit: Visit,
        data: *mut c_void,
        own: [u64; INFO_BYTES / 8],
        own_bytes: usize,
    }
    unsafe extern "C" fn pass(object: *const Object, bytes: usize, walk: *mut c_void) -> c_int {
        // SAFETY: what `iterate` got below, and an object of the linker's.
        unsafe {
            let walk = &mut *walk.cast::<Walk>();
            if (*object).base == Dynamic::own().base && bytes <= INFO_BYTES {
                walk.own_bytes = bytes;
                let own = walk.own.as_mut_ptr().cast::<u8>();
                core::ptr::copy_nonoverlapping(object.cast::<u8>(), own, bytes);
                return 0;
            }
            (walk.visit)(object, bytes, walk.data)
        }
    }
    // A sanitizer asks before this library has begun.
    if ITERATE.load(Ordering::Relaxed).is_null() {
        start();
    }
    let Some(iterate) = iterate() else { return 0 };
    let mut walk = Walk { visit, data, own: [0; INFO_BYTES / 8], own_bytes: 0 };
    // SAFETY: as `pass` takes it.
    let ret = unsafe { iterate(pass, (&raw mut walk).cast()) };
    if ret != 0 || walk.own_bytes == 0 {
        return ret;
    }
    // SAFETY: the caller's visitor. This library stays.
    unsafe { visit(walk.own.as_ptr().cast(), walk.own_bytes, data) }
}

type Iterate = unsafe extern "C" fn(Visit, *mut c_void) -> c_int;

fn iterate() -> Option<Iterate> {
    let iterate = ITERATE.load(Ordering::Relaxed);
    // SAFETY: dl_iterate_phdr has this signature.
    (!iterate.is_null()).then(|| unsafe { core::mem::transmute::<*mut c_void, Iterate>(iterate) })
}

/// What is loaded where there is no dynamic linker, the program first.
fn each_bare(visit: Visit, data: *mut c_void) {
    let (at, count) = bare::headers();
    let headers = at as *const Header;
    let mut program = Object { base: 0, name: c"".as_ptr(), headers, count: count as u16 };
    // SAFETY: the program's headers.
    let all = unsafe { program.headers() };
    if let Some(own) = all.iter().find(|one| one.kind == PT_PHDR) {
        program.base = at.wrapping_sub(own.address);
    } else if let Some(first) = all.iter().find(|one| one.kind == PT_LOAD && one.offset == 0) {
        // Right behind the file's header, which comes first in memory.
        program.base = at.wrapping_sub(FILE_HEADER_BYTES).wrapping_sub(first.address);
    }
    let library = object_at(Dynamic::own().base, c"libyasmin.so");
    for object in [Some(program), library, object_at(bare::vdso(), c"")] {
        // SAFETY: what is loaded stays.
        if object.is_some_and(|it| unsafe { visit(&raw const it, size_of::<Object>(), data) } != 0)
        {
            return;
        }
    }
}

/// The object whose file header is at `at`.
fn object_at(at: usize, name: &'static CStr) -> Option<Object> {
    const HEADERS_AT: usize = 32;
    const COUNT_AT: usize = 56;
    if at == 0 {
        return None;
    }
    // SAFETY: an Elf64_Ehdr, with the program headers where it says.
    unsafe {
        let headers = (at + *((at + HEADERS_AT) as *const usize)) as *const Header;
        let count = *((at + COUNT_AT) as *const u16);
        let mut object = Object { base: at, name: name.as_ptr(), headers, count };
        let first = object.headers().iter().find(|one| one.kind == PT_LOAD)?.address;
        object.base = at.wrapping_sub(first);
        Some(object)
    }
}

/// struct link_map, as far as debuggers know it.
#[repr(C)]
struct Link {
    base: usize,
    name: *const c_char,
    dynamic: *const Entry,
    next: *const Self,
}

/// struct r_debug, its first members.
#[repr(C)]
struct Debug {
    version: c_int,
    first: *const Link,
    told_at: usize,
    state: c_int,
}

/// What the dynamic linker is doing.
pub enum Loader {
    IsDone,
    Adds,
    Removes,
}

core::arch::global_asm!(".weak _r_debug", ".weak _dl_debug_addr");

/// What the dynamic linker's list for debuggers has, in its order. At a process's start: nothing keeps it
/// from changing.
pub fn first_ones() -> impl Iterator<Item = Dynamic> {
    // SAFETY: the linker's list, which ends with null.
    unsafe {
        let first = debug().and_then(|debug| debug.first.as_ref());
        core::iter::successors(first, |link| link.next.as_ref())
            .map(|link| Dynamic { base: link.base, entries: link.dynamic })
    }
}

/// Where the dynamic linker's function for debuggers is.
pub fn told_at() -> Option<usize> {
    debug().map(|debug| debug.told_at).filter(|at| *at != 0)
}

/// What that function tells them.
pub fn loader() -> Option<Loader> {
    match debug()?.state {
        0 => Some(Loader::IsDone),
        1 => Some(Loader::Adds),
        2 => Some(Loader::Removes),
        _ => None,
    }
}

/// How many objects there are.
pub fn count() -> usize {
    unsafe extern "C" fn visit(_: *const Object, _: usize, count: *mut c_void) -> c_int {
        // SAFETY: a number of ours.
        unsafe { *count.cast::<usize>() += 1 };
        0
    }
    let mut count = 0usize;
    each(visit, (&raw mut count).cast());
    count
}

/// The object that so many come before.
pub fn nth(before: usize) -> Option<Object> {
    struct Walk(usize, Option<Object>);
    unsafe extern "C" fn visit(object: *const Object, _: usize, walk: *mut c_void) -> c_int {
        // SAFETY: a walk of ours, and an object that the linker shows.
        let (walk, object) = unsafe { (&mut *walk.cast::<Walk>(), *object) };
        if walk.0 == 0 {
            walk.1 = Some(object);
            return 1;
        }
        walk.0 -= 1;
        0
    }
    let mut walk = Walk(before, None);
    each(visit, (&raw mut walk).cast());
    walk.1
}

/// The object that has something loaded at `address`.
pub fn around(address: usize) -> Option<Object> {
    struct Walk(usize, Option<Object>);
    unsafe extern "C" fn visit(object: *const Object, _: usize, walk: *mut c_void) -> c_int {
        // SAFETY: a walk of ours, and an object that the linker shows.
        let (walk, object) = unsafe { (&mut *walk.cast::<Walk>(), *object) };
        // SAFETY: as above.
        let is_it = unsafe { object.headers() }.iter().any(|one| one.holds(object.base, walk.0));
        if is_it {
            walk.1 = Some(object);
        }
        c_int::from(is_it)
    }
    let mut walk = Walk(address, None);
    each(visit, (&raw mut walk).cast());
    walk.1
}

/// Puts a word into each slot, which the dynamic linker may have made read-only. False: they may not be written.
///
/// # Safety
/// Slots of the object's that is loaded at `base`, near each other.
pub unsafe fn put(words: &[(*mut usize, usize)], base: usize, headers: &[Header]) -> bool {
    const PAGE: usize = 4096;
    const PROT_READ: usize = 1;
    const PROT_WRITE: usize = 2;
    let slots = || words.iter().map(|(slot, _)| *slot as usize);
    let (Some(first), Some(last)) = (slots().min(), slots().max()) else { return true };
    let is_sealed = headers.iter().any(|one| {
        one.kind == PT_GNU_RELRO && one.is_around(base, first) && one.is_around(base, last)
    });
    let begin = first & !(PAGE - 1);
    let len = (last & !(PAGE - 1)) + PAGE - begin;
    // SAFETY: the pages of the slots, which stay readable.
    let protect = |rights: usize| unsafe { call!(mprotect, begin, len, rights) } == 0;
    if is_sealed && !protect(PROT_READ | PROT_WRITE) {
        return false;
    }
    for (slot, word) in words {
        // SAFETY: the caller vouches for it; whoever calls by it meanwhile calls the one or the other.
        unsafe { slot.write_volatile(*word) };
    }
    !is_sealed || protect(PROT_READ)
}

fn debug<'a>() -> Option<&'a Debug> {
    let debug: *const Debug;
    let at: *const *const Debug;
    // SAFETY: two addresses, of glibc's variable and of musl's pointer, null where there is none.
    unsafe {
        core::arch::asm!(
            "mov {debug}, [rip + _r_debug@GOTPCREL]",
            "mov {at}, [rip + _dl_debug_addr@GOTPCREL]",
            debug = out(reg) debug,
            at = out(reg) at,
            options(nostack, pure, readonly),
        );
    }
    // SAFETY: the linker's variables.
    unsafe { if debug.is_null() { at.as_ref().and_then(|at| at.as_ref()) } else { debug.as_ref() } }
}

/// Of an Elf64_Ehdr.
const FILE_HEADER_BYTES: usize = 64;

/// Elf64_Phdr.
#[repr(C)]
pub struct Header {
    pub kind: u32,
    pub flags: u32,
    pub offset: u64,
    pub address: usize,
    pub physical: u64,
    pub file_bytes: usize,
    pub memory_bytes: usize,
    pub align: u64,
}

pub const PT_LOAD: u32 = 1;
pub const PT_DYNAMIC: u32 = 2;
pub const PT_NOTE: u32 = 4;
pub const PT_PHDR: u32 = 6;
pub const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
pub const PT_GNU_RELRO: u32 = 0x6474_e552;
pub const PF_X: u32 = 1;
pub const PF_R: u32 = 4;

impl Header {
    pub fn is_around(&self, base: usize, address: usize) -> bool {
        let at = base.wrapping_add(self.address);
        at <= address && address - at < self.memory_bytes
    }

    pub fn holds(&self, base: usize, address: usize) -> bool {
        self.kind == PT_LOAD && self.is_around(base, address)
    }

    /// What is mapped of the file, readable.
    ///
    /// # Safety
    /// The object stays loaded.
    pub unsafe fn bytes<'a>(&self, base: usize) -> Option<&'a [u8]> {
        let at = base.wrapping_add(self.address) as *const u8;
        let is_whole = self.flags & PF_R != 0 && !at.is_null();
        // SAFETY: the loader mapped the file's bytes there, as the header says.
        is_whole.then(|| unsafe {
            core::slice::from_raw_parts(at, self.file_bytes.min(self.memory_bytes))
        })
    }
}

/// Elf64_Dyn: a tag and its value.
type Entry = [usize; 2];

const DT_NEEDED: usize = 1;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;

/// Elf64_Sym.
#[repr(C)]
pub struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

impl Symbol {
    pub fn is_defined(&self) -> bool {
        self.section != 0
    }
}

unsafe extern "C" {
    #[link_name = "_DYNAMIC"]
    static OWN: Entry;
    #[link_name = "__ehdr_start"]
    static OWN_BASE: u8;
}

/// What an object tells the dynamic linker: its symbols, and tables by tag.
pub struct Dynamic {
    base: usize,
    entries: *const Entry,
}

impl Dynamic {
    /// This library's.
    pub fn own() -> Self {
        Self { base: &raw const OWN_BASE as usize, entries: &raw const OWN }
    }

    /// # Safety
    /// The object at `base` with these `headers` stays loaded.
    pub unsafe fn of(base: usize, headers: &[Header]) -> Option<Self> {
        let section = headers.iter().find(|header| header.kind == PT_DYNAMIC)?;
        Some(Self { base, entries: base.wrapping_add(section.address) as *const Entry })
    }

    pub fn is_own(&self) -> bool {
        self.base == Self::own().base
    }

    pub fn value(&self, tag: usize) -> Option<usize> {
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
    pub fn address(&self, tag: usize) -> Option<usize> {
        let value = self.value(tag)?;
        Some(if value < self.base { self.base + value } else { value })
    }

    pub fn symbol(&self, index: usize) -> Option<&Symbol> {
        // SAFETY: an index that the object's own tables give.
        Some(unsafe { &*(self.address(DT_SYMTAB)? as *const Symbol).add(index) })
    }

    pub fn name(&self, symbol: &Symbol) -> Option<&CStr> {
        let names = self.address(DT_STRTAB)?;
        // SAFETY: the object's own table.
        Some(unsafe { text_at(names, symbol.name as usize) })
    }

    /// Whether it has `name` from another object.
    pub fn imports(&self, name: &CStr) -> bool {
        // The second word of either table: of the newer one, where those that it defines itself begin; of
        // the older one, how many there are.
        let table = self.address(DT_GNU_HASH).or_else(|| self.address(DT_HASH));
        // SAFETY: the tables' layouts.
        let count = table.map_or(0, |table| unsafe { *(table as *const u32).add(1) });
        let (Some(symbols), Some(names)) = (self.address(DT_SYMTAB), self.address(DT_STRTAB))
        else {
            return false;
        };
        (1..count as usize).any(|index| {
            // SAFETY: the object's own tables.
            let one = unsafe { &*(symbols as *const Symbol).add(index) };
            // SAFETY: as above.
            !one.is_defined() && unsafe { text_at(names, one.name as usize) } == name
        })
    }

    /// Whether the objects that it names as needed are all like that.
    pub fn needs_only(&self, is_fine: impl Fn(&[u8]) -> bool) -> bool {
        let Some(names) = self.address(DT_STRTAB) else { return true };
        let mut at = self.entries;
        loop {
            // SAFETY: the section ends with a tag of 0.
            let [tag, value] = unsafe { *at };
            // SAFETY: the object's own table.
            let is_other = || !is_fine(unsafe { text_at(names, value) }.to_bytes());
            match tag {
                0 => return true,
                DT_NEEDED if is_other() => return false,
                _ => at = at.wrapping_add(1),
            }
        }
    }

    /// Where it defines `name`.
    pub fn definition(&self, name: &CStr) -> Option<usize> {
        let is_it = |index: usize| {
            self.symbol(index).filter(|one| one.is_defined() && self.name(one) == Some(name))
        };
        let found = match self.address(DT_GNU_HASH) {
            Some(table) => by_hash(table as *const u32, name, is_it)?,
            // The second word is how many symbols there are.
            // SAFETY: the table's layout.
            None => (1..unsafe { *(self.address(DT_HASH)? as *const u32).add(1) } as usize)
                .find_map(is_it)?,
        };
        Some(self.base + found.value)
    }
}

/// # Safety
/// An object's table of strings, and a place in it. The object stays.
unsafe fn text_at<'a>(names: usize, place: usize) -> &'a CStr {
    // SAFETY: the caller's; the strings are NUL-terminated.
    unsafe { CStr::from_ptr((names + place) as *const c_char) }
}

/// By the table of DT_GNU_HASH: four words, a filter, the heads of the chains, and a hash for each
/// symbol, whose last bit ends a chain.
fn by_hash<'a>(
    table: *const u32,
    name: &CStr,
    is_it: impl Fn(usize) -> Option<&'a Symbol>,
) -> Option<&'a Symbol> {
    // SAFETY: the table's layout.
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
        if other | 1 == hash | 1
            && let found @ Some(_) = is_it(index)
        {
            return found;
        }
        if other & 1 != 0 {
            return None;
        }
        index += 1;
    }
}
