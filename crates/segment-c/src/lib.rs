//! Segments for C: crates/segment/include/yasmin.h, yasmin_segment(3), yasmin_sync(3).
//!
//! A package of its own: cargo gives a library that is for C and for Rust one file name in every
//! profile, and `cargo test` then mixes them up.
//!
//! Each call gives -1 or NULL when it fails, with errno set and a sentence for people in
//! `yasmin_segment_error`. Locks and their like give the error number instead, as pthread's do.
//! Nothing here panics.

mod event;
mod heap;
mod lock;
mod member;

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use nix::errno::Errno;

use yasmin_segment::{At, Broker, Error, Kind, Mapping, Rights, Segment, Whom};

const HUGE: c_uint = 1;
const WITH_CREATOR: c_uint = 2;

const READ: c_uint = 1;
const WRITE: c_uint = 2;
const SPARSE: c_uint = 4;

const ANYWHERE: c_uint = 1;
const POPULATE: c_uint = 2;

const EVERYONE: i64 = -1;

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// `yasmin_segment` in C: open, and mapped at most once.
pub struct Handle {
    segment: Segment,
    mapping: Option<Mapping>,
}

impl Handle {
    /// Its own bytes in this process, if it is attached.
    fn bytes(&self) -> Option<std::ops::Range<usize>> {
        let mapping = self.mapping.as_ref()?;
        let start = mapping.as_ptr().addr();
        Some(start..start + usize::try_from(mapping.size_bytes()).ok()?)
    }
}

fn report(error: &Error) {
    note(error);
    Errno::set_raw(error.errno());
}

/// For `yasmin_segment_error`.
fn note(error: &dyn std::fmt::Display) {
    let text = CString::new(error.to_string().replace('\0', "?")).unwrap_or_default();
    // A thread that ends may have none any more.
    let _ = LAST.try_with(|last| last.replace(text));
}

fn status(result: Result<(), Error>) -> c_int {
    result.map_or_else(
        |error| {
            report(&error);
            -1
        },
        |()| 0,
    )
}

/// # Safety
/// `name` is NULL or a string that ends with a zero.
unsafe fn text(name: *const c_char) -> Result<String, Error> {
    if name.is_null() {
        return Err(Error::Name(String::new()));
    }
    // SAFETY: as the caller promises.
    let name = unsafe { CStr::from_ptr(name) };
    Ok(name.to_string_lossy().into_owned())
}

fn only(flags: c_uint, known: c_uint) -> Result<(), Error> {
    if flags & !known == 0 { Ok(()) } else { Err(Error::Flags(flags.into())) }
}

/// # Safety
/// `name` is NULL or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_create(
    name: *const c_char,
    size_bytes: u64,
    flags: c_uint,
) -> c_int {
    let create = || {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name) }?;
        only(flags, HUGE | WITH_CREATOR)?;
        let kind = Kind { is_huge: flags & HUGE != 0, with_creator: flags & WITH_CREATOR != 0 };
        Broker::find()?.create(&name, size_bytes, kind)
    };
    status(create())
}

/// # Safety
/// `name` is NULL or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_open(name: *const c_char, flags: c_uint) -> *mut Handle {
    let open = || {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name) }?;
        only(flags, READ | WRITE | SPARSE)?;
        let rights = match flags & (READ | WRITE) {
            0 => return Err(Error::Flags(flags.into())),
            READ => Rights::Read,
            _ => Rights::Write,
        };
        Broker::find()?.open(&name, rights, flags & SPARSE != 0)
    };
    match open() {
        Ok(segment) => Box::into_raw(Box::new(Handle { segment, mapping: None })),
        Err(error) => {
            report(&error);
            null_mut()
        }
    }
}

/// # Safety
/// `handle` comes from `yasmin_segment_open`, was not closed, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_attach(handle: *mut Handle, flags: c_uint) -> *mut c_void {
    // SAFETY: as the caller promises.
    let Some(handle) = (unsafe { handle.as_mut() }) else {
        report(&Error::Name(String::new()));
        return null_mut();
    };
    let mut attach = || {
        only(flags, ANYWHERE | POPULATE)?;
        if handle.mapping.is_some() {
            return Err(Error::Attached { name: handle.segment.name().to_owned() });
        }
        let at = if flags & ANYWHERE != 0 { At::Anywhere } else { At::Same };
        let mapping = handle.segment.attach(at)?;
        if flags & POPULATE != 0 {
            mapping.populate()?;
        }
        Ok(handle.mapping.insert(mapping).as_ptr())
    };
    match attach() {
        Ok(start) => start.cast(),
        Err(error) => {
            report(&error);
            null_mut()
        }
    }
}

/// # Safety
/// As for `yasmin_segment_attach`; what is mapped at `at` is the caller's to replace.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_alias(
    handle: *const Handle,
    at: *mut c_void,
    offset: u64,
    size: usize,
) -> c_int {
    // SAFETY: as the caller promises.
    let Some(handle) = (unsafe { handle.as_ref() }) else {
        return status(Err(Error::Name(String::new())));
    };
    // SAFETY: as the caller promises.
    status(unsafe { handle.segment.alias(at.cast(), offset, size) })
}

/// # Safety
/// As for `yasmin_segment_attach`, and no pointer into the segment is used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_detach(handle: *mut Handle) -> c_int {
    // SAFETY: as the caller promises.
    let detached = match unsafe { handle.as_mut() } {
        None => Err(Error::Name(String::new())),
        Some(handle) => match handle.mapping.take() {
            None => Err(Error::NotAttached { name: handle.segment.name().to_owned() }),
            Some(_) => Ok(()),
        },
    };
    status(detached)
}

/// # Safety
/// As for `yasmin_segment_detach`; the handle is not used again. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_close(handle: *mut Handle) {
    if !handle.is_null() {
        // SAFETY: made by `yasmin_segment_open`, and closed once, as the caller promises.
        drop(unsafe { Box::from_raw(handle) });
    }
}

/// # Safety
/// `name` is NULL or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_remove(name: *const c_char) -> c_int {
    // SAFETY: as the caller promises.
    status(unsafe { text(name) }.and_then(|name| Broker::find()?.remove(&name)))
}

/// # Safety
/// `name` is NULL or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_allow(
    name: *const c_char,
    user: i64,
    rights: c_uint,
) -> c_int {
    let allow = || {
        // SAFETY: as the caller promises.
        let name = unsafe { text(name) }?;
        only(rights, READ | WRITE)?;
        let rights = match rights {
            0 => Rights::None,
            READ => Rights::Read,
            _ => Rights::Write,
        };
        let whom = match user {
            EVERYONE => Whom::Everyone,
            user => Whom::User(u32::try_from(user).map_err(|_| Error::Flags(user as u64))?),
        };
        Broker::find()?.allow(&name, whom, rights)
    };
    status(allow())
}

/// # Safety
/// `handle` comes from `yasmin_segment_open` and was not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_size(handle: *const Handle) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { handle.as_ref() }.map_or(0, |handle| handle.segment.size_bytes())
}

/// # Safety
/// As for `yasmin_segment_size`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_segment_address(handle: *const Handle) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { handle.as_ref() }.map_or(0, |handle| handle.segment.address())
}

/// The sentence lives until the next call of this thread that fails.
#[unsafe(no_mangle)]
pub extern "C" fn yasmin_segment_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}
