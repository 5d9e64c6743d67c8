//! What has no owner: semaphore, condition, barrier.

use std::ffi::{c_int, c_uint};

use yasmin_segment::sync::{Barrier, Condition, Error, Mutex, Passed, Semaphore, Wait};

use crate::member::{Member, acquired, act, deadline, number, seen};

/// The one in each round that came last, as PTHREAD_BARRIER_SERIAL_THREAD.
const SERIAL: c_int = -1;

/// # Safety
/// `semaphore` is zeroed memory that nobody uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_semaphore_init(
    semaphore: *const Semaphore,
    value: c_uint,
) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe { seen(semaphore) }.and_then(|it| it.set_value(value)))
}

/// # Safety
/// `member` was not left; `semaphore` lies in its segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_semaphore_wait(
    member: *const Member,
    semaphore: *const Semaphore,
) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe { act(member, semaphore, |by, it| it.wait(by, Wait::Forever)) })
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_semaphore_trywait(
    member: *const Member,
    semaphore: *const Semaphore,
) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe { act(member, semaphore, |by, it| it.wait(by, Wait::No)) })
}

/// # Safety
/// As above; `until` is NULL or a timespec.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_semaphore_timedwait(
    member: *const Member,
    semaphore: *const Semaphore,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe {
        let wait = deadline(until);
        act(member, semaphore, |by, it| it.wait(by, wait?))
    })
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_semaphore_post(
    member: *const Member,
    semaphore: *const Semaphore,
) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe { act(member, semaphore, |by, it| it.post(by.waiter())) })
}

/// # Safety
/// `semaphore` lies in an attached segment; `value` may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_semaphore_value(
    semaphore: *const Semaphore,
    value: *mut c_uint,
) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe { seen(semaphore) }.and_then(Semaphore::value).map(|now| {
        if !value.is_null() {
            // SAFETY: as the caller promises.
            unsafe { value.write(now) };
        }
    }))
}

/// # Safety
/// `member` was not left; `condition` and `mutex` lie in its segment; `fence` is NULL or may be
/// written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_condition_wait(
    member: *const Member,
    condition: *const Condition,
    mutex: *const Mutex,
    fence: *mut u64,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let mutex = seen(mutex);
        acquired(act(member, condition, |by, it| it.wait(by, mutex?, Wait::Forever)), fence)
    }
}

/// # Safety
/// As above; `until` is NULL or a timespec.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_condition_timedwait(
    member: *const Member,
    condition: *const Condition,
    mutex: *const Mutex,
    until: *const libc::timespec,
    fence: *mut u64,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let (mutex, wait) = (seen(mutex), deadline(until));
        acquired(act(member, condition, |by, it| it.wait(by, mutex?, wait?)), fence)
    }
}

/// # Safety
/// `member` was not left; `condition` lies in its segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_condition_signal(
    member: *const Member,
    condition: *const Condition,
) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe { act(member, condition, |by, it| it.signal(by.waiter())) })
}

/// # Safety
/// As above.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_condition_broadcast(
    member: *const Member,
    condition: *const Condition,
) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe { act(member, condition, |by, it| it.broadcast(by.waiter())) })
}

/// # Safety
/// `barrier` is memory in a segment at which nobody waits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_barrier_init(barrier: *const Barrier, parties: c_uint) -> c_int {
    // SAFETY: as the caller promises.
    number(unsafe { seen(barrier) }.and_then(|it| it.repair(parties)))
}

fn passed(result: Result<Passed, Error>) -> c_int {
    match result {
        Ok(Passed::Last) => SERIAL,
        Ok(Passed::Other) => 0,
        Err(error) => number(Err(error)),
    }
}

/// # Safety
/// `member` was not left; `barrier` lies in its segment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_barrier_wait(
    member: *const Member,
    barrier: *const Barrier,
) -> c_int {
    // SAFETY: as the caller promises.
    passed(unsafe { act(member, barrier, |by, it| it.wait(by, Wait::Forever)) })
}

/// # Safety
/// As above; `until` is NULL or a timespec.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn yasmin_barrier_timedwait(
    member: *const Member,
    barrier: *const Barrier,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: as the caller promises.
    passed(unsafe {
        let wait = deadline(until);
        act(member, barrier, |by, it| it.wait(by, wait?))
    })
}
