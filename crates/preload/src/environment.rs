//! Environments: the program's own, and those that it hands to others.
//!
//! Storey 1: system.

use core::ffi::c_char;

use crate::{bare, memory, real, sys};

pub type Strings = *const *const c_char;

const PRELOAD: &[u8] = b"LD_PRELOAD=";

/// The program's own, as it is now; null if there is none.
pub fn own() -> Strings {
    if bare::is() {
        return bare::environment();
    }
    let variable = real::anywhere(b"environ\0").cast::<*const *const c_char>();
    // SAFETY: null, or libc's variable of this name.
    if variable.is_null() { core::ptr::null() } else { unsafe { *variable } }
}

/// The value of the variable that `name` (with its `=`) begins; it lives as long as the string.
///
/// # Safety
/// An array of C strings that ends with null, or null.
pub unsafe fn variable<'a>(environment: Strings, name: &[u8]) -> Option<&'a [u8]> {
    let mut at = environment;
    // A bad pointer ends it: the exec will fail.
    while let Some(entry) = memory::get(at).filter(|entry| !entry.is_null()) {
        let byte = |i: usize| memory::get(entry.cast::<u8>().wrapping_add(i)).unwrap_or(0);
        if (0..name.len()).all(|i| byte(i) == name[i]) {
            let len = (name.len()..).take_while(|&i| byte(i) != 0).count();
            // SAFETY: looked at just now.
            return Some(unsafe {
                core::slice::from_raw_parts(entry.cast::<u8>().add(name.len()), len)
            });
        }
        at = at.wrapping_add(1);
    }
    None
}

/// What the loader is to preload, by `environment`.
///
/// # Safety
/// As for `variable`.
pub unsafe fn preloaded<'a>(environment: Strings) -> Option<&'a [u8]> {
    // SAFETY: the caller's.
    unsafe { variable(environment, PRELOAD) }
}

/// The paths in the value of LD_PRELOAD.
pub fn paths(preloaded: &[u8]) -> impl Iterator<Item = &[u8]> {
    preloaded.split(|byte| b": ".contains(byte)).filter(|path| !path.is_empty())
}

/// Room for a copy of an environment.
struct Copy {
    entries: [*const c_char; Self::ENTRIES],
    preload: [u8; Self::PRELOAD_BYTES],
}

impl Copy {
    const ENTRIES: usize = 512;
    const PRELOAD_BYTES: usize = 2048;
    const NEW: Self =
        Self { entries: [core::ptr::null(); Self::ENTRIES], preload: [0; Self::PRELOAD_BYTES] };

    /// All but the paths of LD_PRELOAD that `is_dropped`. `None`: there is no room.
    ///
    /// # Safety
    /// As for `variable`.
    unsafe fn fill(&mut self, from: Strings, is_dropped: fn(&[u8]) -> bool) -> Option<Strings> {
        // SAFETY: the caller's.
        let value = unsafe { preloaded(from) }?;
        let mut len = 0;
        let mut put = |bytes: &[u8]| {
            // The last byte stays 0.
            let end = len + bytes.len();
            let room = self.preload[..Self::PRELOAD_BYTES - 1].get_mut(len..end)?;
            room.copy_from_slice(bytes);
            len = end;
            Some(())
        };
        put(PRELOAD)?;
        let mut is_first = true;
        for path in paths(value).filter(|path| !is_dropped(path)) {
            if !is_first {
                put(b":")?;
            }
            put(path)?;
            is_first = false;
        }
        let (mut at, mut count) = (from, 0);
        while let Some(entry) = memory::get(at).filter(|entry| !entry.is_null()) {
            let is_it = entry.cast::<u8>().wrapping_add(PRELOAD.len()) == value.as_ptr();
            if !is_it || !is_first {
                *self.entries[..Self::ENTRIES - 1].get_mut(count)? =
                    if is_it { self.preload.as_ptr().cast() } else { entry };
                count += 1;
            }
            at = at.wrapping_add(1);
        }
        Some(self.entries.as_ptr())
    }
}

/// Hands `to` the environment without the paths of LD_PRELOAD that `is_dropped`; as it is, if it is too large.
///
/// # Safety
/// As for `variable`.
#[cold]
#[inline(never)]
pub unsafe fn without<R>(
    environment: Strings,
    is_dropped: fn(&[u8]) -> bool,
    to: impl FnOnce(Strings) -> R,
) -> R {
    let mut copy = Copy::NEW;
    // SAFETY: the caller's.
    to(unsafe { copy.fill(environment, is_dropped) }.unwrap_or(environment))
}

/// The same of the program's own environment, for good: for who hands it to a program within libc.
///
/// # Safety
/// As for `variable`.
#[cold]
pub unsafe fn change_own(is_dropped: fn(&[u8]) -> bool) {
    let variable = real::anywhere(b"environ\0").cast::<Strings>();
    let Some(copy) = sys::map_private(size_of::<Copy>()) else { return };
    // SAFETY: null, or libc's variable; a mapping of ours, zeroed.
    unsafe {
        let copy = &mut *copy.cast::<Copy>();
        if let Some(changed) = copy.fill(own(), is_dropped)
            && !variable.is_null()
        {
            *variable = changed;
        }
    }
}
