//! dlsym and dlvsym: what a program looks up in libc's own handle, and this library stands in front of, it gets from
//! here. Python's ctypes and Java's and Ruby's foreign functions find libc so.
//!
//! Storey 7: exports.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::object::{Dynamic, Object};
use crate::real;

type Visit = unsafe extern "C" fn(*const Object, usize, *mut c_void) -> c_int;

unsafe extern "C" {
    fn dl_iterate_phdr(visit: Visit, data: *mut c_void) -> c_int;
}

/// libc's. The version is dlvsym's alone.
type Lookup = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

macro_rules! lookups {
    ($($name:ident, $slot:ident, $find:ident, $by_handle:ident;)*) => {$(
        static $slot: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

        /// RTLD_DEFAULT (0) and RTLD_NEXT (-1) depend on who calls, so libc's is jumped to.
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
                "jmp qword ptr [rip + {slot}]",
                slot = sym $slot,
                find = sym $find,
                by_handle = sym $by_handle,
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

/// The first definition behind this library's. Nothing but the objects can be asked for it.
fn behind_own(name: &CStr) -> *mut c_void {
    extern "C" fn nothing() -> *mut c_void {
        core::ptr::null_mut()
    }
    struct Walk<'a> {
        name: &'a CStr,
        is_past_own: bool,
        found: Option<usize>,
    }
    unsafe extern "C" fn visit(object: *const Object, _: usize, walk: *mut c_void) -> c_int {
        // SAFETY: the linker shows an object, and hands the Walk back.
        let (object, walk) = unsafe { (&*object, &mut *walk.cast::<Walk<'_>>()) };
        // SAFETY: as above.
        let dynamic = unsafe { Dynamic::of(object.base, object.headers()) };
        let Some(dynamic) = dynamic else { return 0 };
        if walk.is_past_own {
            walk.found = dynamic.definition(walk.name);
        }
        walk.is_past_own |= dynamic.is_own();
        c_int::from(walk.found.is_some())
    }
    let mut walk = Walk { name, is_past_own: false, found: None };
    // SAFETY: libc's function, and `visit` as it wants it.
    unsafe { dl_iterate_phdr(visit, (&raw mut walk).cast()) };
    walk.found.unwrap_or(nothing as *const () as usize) as *mut c_void
}
