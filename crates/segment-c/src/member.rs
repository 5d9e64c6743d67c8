//! A process as a member of a segment: who locks.

use std::ffi::{c_int, c_uint};
use std::io;
use std::ops::Range;
use std::ptr::null_mut;

use nix::errno::Errno;
use yasmin_segment::sync::{Acquired, Attachment, Error, Identity, Party, Slot, Wait};

use crate::{Handle, note};

/// `yasmin_member` in C.
pub struct Member {
    attachment: Attachment<'static>,
    /// Of the segment, in this process.
    pub bytes: Range<usize>,
}

/// What one of these calls gives: 0, or an error number, with a sentence.
pub fn number(result: Result<(), Error>) -> c_int {
    result.map_or_else(
        |error| {
            note(&error);
            error.errno()
        },
        |()| 0,
    )
}

/// The same for what has an owner, whose acquisition has a number.
///
/// # Safety
/// `fence` is NULL or may be written.
pub unsafe fn acquired(result: Result<Acquired, Error>, fence: *mut u64) -> c_int {
    match result {
        Ok(acquired) => {
            if !fence.is_null() {
                // SAFETY: as the caller promises.
                unsafe { fence.write(acquired.fence) };
            }
            if acquired.owner_died {
                note(
                    &"an owner died while it held it; what it guards may be in the middle of a change",
                );
                return libc::EOWNERDEAD;
            }
            0
        }
        Err(error) => number(Err(error)),
    }
}

/// Looks at what C gives a pointer to.
///
/// # Safety
/// `at` is NULL or points at such a thing, which lives as long as the caller uses it.
pub unsafe fn seen<'a, T>(at: *const T) -> Result<&'a T, Error> {
    if !at.is_aligned() {
        return Err(Error::Invalid("what is to be locked lies at a multiple of 8 bytes"));
    }
    // SAFETY: as the caller promises; all that members share in it are atomics.
    unsafe { at.as_ref() }.ok_or(Error::Invalid("NULL is no lock"))
}

/// Runs `act` as the calling thread of `member`, on what lies at `at`.
///
/// # Safety
/// `member` is NULL or was not left; `at` as in [`seen`].
pub unsafe fn act<T, L>(
    member: *const Member,
    at: *const L,
    act: impl FnOnce(&Party<'_>, &L) -> Result<T, Error>,
) -> Result<T, Error> {
    // SAFETY: as the caller promises.
    let member = unsafe { member.as_ref() }.ok_or(Error::NotMember)?;
    // SAFETY: as the caller promises.
    let thing = unsafe { seen(at) }?;
    member.attachment.act(|by| act(by, thing))
}

impl Member {
    pub fn act<T>(&self, act: impl FnOnce(&Party<'_>) -> Result<T, Error>) -> Result<T, Error> {
        self.attachment.act(act)
    }
}

/// A deadline by CLOCK_MONOTONIC.
///
/// # Safety
/// `until` is NULL or a timespec.
pub unsafe fn deadline(until: *const libc::timespec) -> Result<Wait, Error> {
    let bad = Error::Invalid("a deadline has seconds from 0 on and 0 to 999,999,999 nanoseconds");
    // SAFETY: as the caller promises.
    let until = unsafe { until.as_ref() }.ok_or(bad)?;
    let seconds = u64::try_from(until.tv_sec).map_err(|_| bad)?;
    let ns = u64::try_from(until.tv_nsec).ok().filter(|&ns| ns < 1_000_000_000).ok_or(bad)?;
    Ok(Wait::Until(seconds.saturating_mul(1_000_000_000).saturating_add(ns)))
}

fn fail(error: &io::Error) -> Errno {
    note(&format_args!("this process cannot join the segment: {error}"));
    match error.raw_os_error() {
        Some(errno) => Errno::from_raw(errno),
        None if error.kind() == io::ErrorKind::PermissionDenied => Errno::EACCES,
        None => match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(error) => Errno::from_raw(error.errno()),
            None => Errno::EIO,
        },
    }
}

fn identity() -> Identity {
    Identity { domain: 0, process: std::process::id(), epoch: 0 }
}

/// # Safety
/// `handle` is NULL or comes from `yasmin_segment_open`, stays open and attached while the member
/// is there, and no other thread uses it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_member_join(
    handle: *const Handle,
    slots: *mut Slot,
    count: c_uint,
) -> *mut Member {
    // SAFETY: as the caller promises.
    let bytes = unsafe { handle.as_ref() }.and_then(|handle| Some((handle, handle.bytes()?)));
    let Some((handle, bytes)) = bytes else {
        note(&"only an attached segment has members");
        Errno::set(Errno::EINVAL);
        return null_mut();
    };
    let end = (count as usize).checked_mul(size_of::<Slot>()).map(|len| slots.addr() + len);
    let fits = end.is_some_and(|end| end <= bytes.end) && slots.addr() >= bytes.start;
    if !fits || count == 0 || !slots.is_aligned() {
        note(&format_args!(
            "{count} slots at {slots:p}: give 1 or more, at a multiple of 8 bytes inside the segment"
        ));
        Errno::set(Errno::EINVAL);
        return null_mut();
    }
    // SAFETY: inside the mapping, which stays as long as the member, as the caller promises; slots
    // are atomics, for which any bytes are values.
    let slots: &'static [Slot] = unsafe { std::slice::from_raw_parts(slots, count as usize) };
    match handle.segment.join(slots) {
        Ok(attachment) => Box::into_raw(Box::new(Member { attachment, bytes })),
        Err(error) => {
            Errno::set(fail(&error));
            null_mut()
        }
    }
}

/// # Safety
/// `member` is NULL or was not left, and no other thread uses it during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_member_renew(member: *mut Member) -> c_int {
    // SAFETY: as the caller promises.
    let Some(member) = (unsafe { member.as_mut() }) else {
        return number(Err(Error::NotMember));
    };
    match member.attachment.renew(identity()) {
        Ok(()) => 0,
        Err(error) => fail(&error) as c_int,
    }
}

/// # Safety
/// `member` is NULL or was not left; nothing uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_member_leave(member: *mut Member) {
    if !member.is_null() {
        // SAFETY: made by `yasmin_member_join`, and left once, as the caller promises.
        drop(unsafe { Box::from_raw(member) });
    }
}

/// # Safety
/// `member` is NULL or was not left.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_member_number(member: *const Member) -> u32 {
    // SAFETY: as the caller promises.
    let number = unsafe { member.as_ref() }.and_then(|member| member.attachment.number().ok());
    number.map_or(0, |number| number.bits())
}
