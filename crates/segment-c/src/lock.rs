//! What has an owner: mutex, reader-writer lock, sequence lock, once.

use std::ffi::{c_int, c_uint};

use yasmin_segment::sync::{
    Begun, Error, Kind, Members, Mutex, Once, RwLock, Sequence, Slot, Snapshot, Wait,
};

use crate::Handle;
use crate::member::{Member, acquired, act, deadline, number, seen};

/// `yasmin_once_begin`: the caller makes it.
const MAKE: c_int = -1;

/// Three ways to wait for one thing.
macro_rules! ways {
    ($plain:ident, $tried:ident, $timed:ident, $lock:ty, $method:ident) => {
        /// # Safety
        /// `member` was not left; `lock` lies in its segment; `fence` is NULL or may be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $plain(
            member: *const Member,
            lock: *const $lock,
            fence: *mut u64,
        ) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { acquired(act(member, lock, |by, it| it.$method(by, Wait::Forever)), fence) }
        }

        /// # Safety
        /// As above.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $tried(
            member: *const Member,
            lock: *const $lock,
            fence: *mut u64,
        ) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { acquired(act(member, lock, |by, it| it.$method(by, Wait::No)), fence) }
        }

        /// # Safety
        /// As above; `until` is NULL or a timespec.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $timed(
            member: *const Member,
            lock: *const $lock,
            until: *const libc::timespec,
            fence: *mut u64,
        ) -> c_int {
            // SAFETY: as the caller promises.
            unsafe {
                let wait = deadline(until);
                acquired(act(member, lock, |by, it| it.$method(by, wait?)), fence)
            }
        }
    };
}

/// What the owner says of it.
macro_rules! says {
    ($name:ident, $lock:ty, $method:ident) => {
        /// # Safety
        /// `member` was not left; `lock` lies in its segment.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(member: *const Member, lock: *const $lock) -> c_int {
            // SAFETY: as the caller promises.
            number(unsafe { act(member, lock, |by, it| it.$method(by)) })
        }
    };
}

ways!(yasmin_mutex_lock, yasmin_mutex_trylock, yasmin_mutex_timedlock, Mutex, lock);
says!(yasmin_mutex_unlock, Mutex, unlock);
says!(yasmin_mutex_consistent, Mutex, consistent);

/// # Safety
/// `mutex` is zeroed memory that nobody uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_mutex_init(mutex: *const Mutex, kind: c_uint) -> c_int {
    let init = || {
        let kind = match kind {
            0 => Kind::Plain,
            1 => Kind::ErrorChecking,
            2 => Kind::Recursive,
            _ => return Err(Error::Invalid("a mutex is plain, error-checking or recursive")),
        };
        // SAFETY: as the caller promises.
        unsafe { seen(mutex) }?.set_kind(kind);
        Ok(())
    };
    number(init())
}

ways!(yasmin_rwlock_rdlock, yasmin_rwlock_tryrdlock, yasmin_rwlock_timedrdlock, RwLock, read);
ways!(yasmin_rwlock_wrlock, yasmin_rwlock_trywrlock, yasmin_rwlock_timedwrlock, RwLock, write);
says!(yasmin_rwlock_unlock, RwLock, unlock);
says!(yasmin_rwlock_consistent, RwLock, consistent);

ways!(yasmin_sequence_write, yasmin_sequence_trywrite, yasmin_sequence_timedwrite, Sequence, write);
says!(yasmin_sequence_finish, Sequence, finish);

/// # Safety
/// `sequence` lies in an attached segment; `snapshot` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_sequence_begin(
    sequence: *const Sequence,
    snapshot: *mut u64,
) -> c_int {
    // SAFETY: as the caller promises.
    match unsafe { seen(sequence) }.and_then(Sequence::begin) {
        Ok(begun) => {
            // SAFETY: as the caller promises.
            unsafe { snapshot.write(begun.number()) };
            0
        }
        // Readers ask again and again: no sentence.
        Err(Error::Busy) => libc::EBUSY,
        Err(error) => number(Err(error)),
    }
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_sequence_is_whole(
    sequence: *const Sequence,
    snapshot: u64,
) -> c_int {
    // SAFETY: as the caller promises.
    let whole = unsafe { seen(sequence) }.map(|it| it.is_whole(Snapshot::from_number(snapshot)));
    whole.unwrap_or(false).into()
}

/// # Safety
/// `handle` is open and attached; `slots` and `sequence` lie in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_sequence_is_abandoned(
    handle: *const Handle,
    slots: *const Slot,
    count: c_uint,
    sequence: *const Sequence,
) -> c_int {
    let ask = || {
        let outside = Error::Invalid("the members' slots lie in an attached segment");
        // SAFETY: as the caller promises.
        let handle = unsafe { handle.as_ref() }.ok_or(outside)?;
        let bytes = handle.bytes().ok_or(outside)?;
        let len = (count as usize).checked_mul(size_of::<Slot>()).ok_or(outside)?;
        if slots.addr() < bytes.start || slots.addr() + len > bytes.end || !slots.is_aligned() {
            return Err(outside);
        }
        // SAFETY: inside the mapping, as just seen.
        let slots = unsafe { std::slice::from_raw_parts(slots, count as usize) };
        let probe = handle.segment.probe();
        let probe = probe.map_err(|_| Error::Invalid("no descriptor is left to ask by"))?;
        // SAFETY: as the caller promises.
        unsafe { seen(sequence) }?.is_abandoned(Members::new(slots), &probe)
    };
    ask()
        .unwrap_or_else(|error| {
            crate::note(&error);
            false
        })
        .into()
}

/// # Safety
/// `member` was not left; `once` lies in its segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_once_begin(member: *const Member, once: *const Once) -> c_int {
    // SAFETY: as the caller promises.
    match unsafe { act(member, once, |by, it| it.begin(by, Wait::Forever)) } {
        Ok(Begun::Done) => 0,
        Ok(Begun::Make { owner_died: false }) => MAKE,
        Ok(Begun::Make { owner_died: true }) => {
            crate::note(&"an owner died while it made it");
            libc::EOWNERDEAD
        }
        Err(error) => number(Err(error)),
    }
}

says!(yasmin_once_finish, Once, finish);
says!(yasmin_once_give_up, Once, give_up);
