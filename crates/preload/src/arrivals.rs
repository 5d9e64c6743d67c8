//! Objects in Rust that come by dlopen: their instructions that enter the kernel get detours (`direct`) before the
//! first of them runs. Python's packages are such.
//!
//! glibc calls an empty function for debuggers (`_dl_debug_state`): before it adds objects, and once they are mapped,
//! before anything of theirs runs. With the program's first dlopen that function gets a jump to here.
//!
//! - Its only instruction has padding behind it. Whoever runs it meanwhile runs the old one or the new one: the page is
//!   replaced as a whole, and both begin at the same place.
//! - The thread that loads holds the linker's lock. Nothing here waits for a lock of the library's.
//!
//! Storey 7: exports.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::object::{self, Header, Loader, Object, PF_X};
use crate::{bare, detours, direct, process, sys, text};

/// Whether the function has its jump, or cannot have one.
static IS_TRIED: AtomicBool = AtomicBool::new(false);
/// How many objects there were when the linker was done the last time. What runs already is among them.
static KNOWN: AtomicUsize = AtomicUsize::new(usize::MAX);
/// The linker has said that it adds some, and not yet that it is done. Where it began before the jump was there, nobody
/// knows which are new.
static ADDS: AtomicBool = AtomicBool::new(false);

/// Before dlopen; `slot` is where its return address lies.
pub extern "C" fn before_dlopen(
    a: usize,
    flags: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    slot: *const usize,
) {
    text::before_dlopen(a, flags, c, d, e, f, slot);
    if !IS_TRIED.load(Ordering::Relaxed)
        && !is_in_vain()
        && direct::find_registers()
        && !IS_TRIED.swap(true, Ordering::Relaxed)
        && !object::each(visit_loader, core::ptr::null_mut())
    {
        // Another object's constructor runs before this library's.
        IS_TRIED.store(false, Ordering::Relaxed);
    }
}

/// Whether this process gets no rings anyway, or may not do what is needed.
fn is_in_vain() -> bool {
    text::is_careful()
        || bare::is()
        || process::is_sandboxed()
        || process::is_borrowed()
        || process::is_translated()
}

unsafe extern "C" fn visit_loader(object: *const Object, _: usize, _: *mut c_void) -> c_int {
    let Some(at) = object::told_at() else { return 1 };
    // SAFETY: the linker shows it.
    let (base, headers) = unsafe { ((*object).base, (*object).headers()) };
    let holds = |header: &&Header| header.flags & PF_X != 0 && header.holds(base, at);
    let Some(header) = headers.iter().find(holds) else { return 0 };
    // Nobody adds to the list while it is shown.
    KNOWN.store(object::count(), Ordering::Relaxed);
    // SAFETY: the linker's own text stays.
    if let Some(code) = unsafe { header.bytes(base) } {
        lead_here(code, at - code.as_ptr() as usize);
    }
    1
}

/// Puts the jump at `at` into the linker's code, if an empty function is there.
fn lead_here(code: &'static [u8], at: usize) {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    const RET: u8 = 0xc3;
    const ALIGN: usize = 16;
    let at = if code[at..].starts_with(ENDBR64) { at + ENDBR64.len() } else { at };
    let end = (code.as_ptr() as usize + at + 1).next_multiple_of(ALIGN) - code.as_ptr() as usize;
    let Some([RET, padding @ ..]) = code.get(at..end) else { return };
    if yasmin_text::is_all_padding(padding) {
        detours::lead(code, at, padding.len() + 1, told);
    }
}

/// In the place of the linker's function.
extern "C" fn told() {
    let saved = sys::errno();
    match object::loader() {
        Some(Loader::Adds) => ADDS.store(true, Ordering::Relaxed),
        Some(Loader::IsDone) => {
            let count = object::count();
            let known = KNOWN.swap(count, Ordering::Relaxed);
            if ADDS.swap(false, Ordering::Relaxed) && count > known && !is_in_vain() {
                divert(known, count);
            }
        }
        _ => ADDS.store(false, Ordering::Relaxed),
    }
    sys::set_errno(saved);
}

/// Those behind so many, up to `count`. Nobody else adds or removes any: this thread holds the linker's lock. The list is
/// not locked meanwhile, which others look through.
fn divert(known: usize, count: usize) {
    for object in (known..count).filter_map(object::nth) {
        // SAFETY: it stays until the linker lets others in.
        if unsafe { direct::is_rust(&object) } {
            // SAFETY: nothing of it runs yet.
            unsafe { direct::divert_object(&object) };
        }
    }
}
