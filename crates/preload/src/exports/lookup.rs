//! dlsym and dlvsym: what a program looks up in libc's own handle, or behind itself, and this library stands in front of,
//! it gets from here. Python's ctypes and Java's and Ruby's foreign functions find libc by its handle.
//!
//! Storey 7: exports.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::object::{self, Dynamic, Object, Visit};
use crate::{real, text};

/// libc's. The version is dlvsym's alone.
type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

macro_rules! lookups {
    ($($name:ident, $slot:ident, $find:ident, $by_handle:ident;)*) => {$(
        static $slot: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

        /// RTLD_DEFAULT (0) and RTLD_NEXT (-1) depend on who calls: libc's is jumped to, unless it is clear
        /// that it would find libc's own.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        extern "C" fn $name() {
            core::arch::naked_asm!(
                "cmp qword ptr [rip + {slot}], 0",
                "jne 2f",
                "push rdi", "push rsi", "push rdx",
                "call {find}",
                "pop rdx", "pop rsi", "pop rdi",
                "2:",
                "lea rax, [rdi + 1]",
                "cmp rax, 1",
                "ja {by_handle}",
                // Three words align rsp; above them lies where the caller goes on.
                "push rdi", "push rsi", "push rdx",
                "mov rdi, [rsp + 24]",
                "call {own_for}",
                "pop rdx", "pop rsi", "pop rdi",
                "test rax, rax",
                "jne 3f",
                "jmp qword ptr [rip + {slot}]",
                "3:",
                "ret",
                slot = sym $slot,
                find = sym $find,
                by_handle = sym $by_handle,
                own_for = sym own_for,
            )
        }

        #[cold]
        extern "C" fn $find() {
            let name = concat!(stringify!($name), "\0");
            // SAFETY: it ends with the only NUL.
            let name = unsafe { CStr::from_bytes_with_nul_unchecked(name.as_bytes()) };
            $slot.store(behind_own(name), Ordering::Relaxed);
        }

        unsafe extern "C" fn $by_handle(
            handle: *mut c_void,
            name: *const c_char,
            version: *const c_char,
        ) -> *mut c_void {
            text::before_first_call();
            // SAFETY: the program's own arguments; a function of this type.
            unsafe {
                let lookup: Lookup = core::mem::transmute($slot.load(Ordering::Relaxed));
                own_of(lookup(handle, name, version), name)
            }
        }
    )*};
}

lookups! {
    dlsym, DLSYM, find_dlsym, dlsym_by_handle;
    dlvsym, DLVSYM, find_dlvsym, dlvsym_by_handle;
}

/// This library's function of the name, should `found` be the one that it stands in front of.
///
/// # Safety
/// `name`: what was looked up.
unsafe fn own_of(found: *mut c_void, name: *const c_char) -> *mut c_void {
    if found.is_null() {
        return found;
    }
    // SAFETY: it named something.
    let name = unsafe { CStr::from_ptr(name) };
    match Dynamic::own().definition(name) {
        // Where another library stands behind this one and in front of libc, it is the one that asks,
        // for what comes after itself.
        Some(own) if real::next(name.to_bytes_with_nul()) == found => own as *mut c_void,
        _ => found,
    }
}

/// This library's function of the name, for a caller whose own object need not define it, where libc alone
/// has another one. An object that has one too stands in front of libc, and means what comes behind itself.
extern "C" fn own_for(caller: usize, name: *const c_char) -> *mut c_void {
    struct Walk<'a> {
        name: &'a CStr,
        caller: usize,
        is_libcs_alone: bool,
    }
    unsafe extern "C" fn visit(object: *const Object, _: usize, walk: *mut c_void) -> c_int {
        // SAFETY: the linker shows an object, and hands the Walk back.
        let (object, walk) = unsafe { (&*object, &mut *walk.cast::<Walk<'_>>()) };
        // SAFETY: as above.
        let headers = unsafe { object.headers() };
        // SAFETY: as above.
        let Some(dynamic) = (unsafe { Dynamic::of(object.base, headers) }) else { return 0 };
        if dynamic.is_own() {
            let is_caller = headers.iter().any(|header| header.holds(object.base, walk.caller));
            walk.is_libcs_alone &= !is_caller;
        } else if dynamic.definition(walk.name).is_some() {
            walk.is_libcs_alone &= dynamic.definition(c"__libc_start_main").is_some();
        }
        c_int::from(!walk.is_libcs_alone)
    }
    if name.is_null() {
        return core::ptr::null_mut();
    }
    // SAFETY: the program's own argument.
    let name = unsafe { CStr::from_ptr(name) };
    let Some(own) = Dynamic::own().definition(name) else { return core::ptr::null_mut() };
    let mut walk = Walk { name, caller, is_libcs_alone: true };
    let is_known = object::each(visit, (&raw mut walk).cast());
    if is_known && walk.is_libcs_alone { own as *mut c_void } else { core::ptr::null_mut() }
}

/// The first definition behind this library's. Nothing but the objects can be asked for it, and those in
/// the linker's own list: a program may have a dl_iterate_phdr of its own, which begins with dlsym.
fn behind_own(name: &CStr) -> *mut c_void {
    extern "C" fn nothing() -> *mut c_void {
        core::ptr::null_mut()
    }
    let mut objects = object::first_ones().skip_while(|dynamic| !dynamic.is_own()).skip(1);
    let found = objects.find_map(|dynamic| dynamic.definition(name));
    found.unwrap_or(nothing as *const () as usize) as *mut c_void
}

/// # Safety
/// As for dl_iterate_phdr(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn dl_iterate_phdr(visit: Visit, data: *mut c_void) -> c_int {
    // SAFETY: the caller's.
    unsafe { object::each_own_last(visit, data) }
}
