//! A member that writes anything over the locks: every call ends, with an error or without.
#![allow(clippy::undocumented_unsafe_blocks, reason = "test memory")]

mod common;

use common::{Random, attach, segment, soon};
use yasmin_segment::sync::{
    Barrier, Begun, Condition, Error, Mutex, Once, RwLock, Semaphore, Sequence, Wait,
};

#[repr(C)]
struct Body {
    mutex: Mutex,
    rwlock: RwLock,
    semaphore: Semaphore,
    condition: Condition,
    barrier: Barrier,
    once: Once,
    sequence: Sequence,
}

/// Words that look like something: few bits set, small fields, all ones.
fn word(random: &mut Random) -> u64 {
    match random.below(5) {
        0 => 0,
        1 => 1 << random.below(64),
        2 => random.below(1 << 20),
        3 => u64::MAX >> random.below(64),
        _ => random.below(u64::MAX),
    }
}

#[test]
fn every_call_ends() {
    let (file, segment) = segment::<Body>();
    let attachment = attach(&file, segment);
    let body = &segment.body;
    let mut random = Random(0xC0FF_EE11);
    let (mut spoiled, mut other) = (0, 0);
    for _ in 0..1500 {
        let words = std::ptr::from_ref(body).cast_mut().cast::<u64>();
        for index in 0..size_of::<Body>() / 8 {
            let rubbish = if random.below(3) == 0 { word(&mut random) } else { 0 };
            unsafe { words.add(index).write_volatile(rubbish) };
        }
        let wait = if random.below(8) == 0 { soon(1) } else { Wait::No };
        let mut note = |result: Result<(), Error>| match result {
            Err(Error::Spoiled { .. }) => spoiled += 1,
            _ => other += 1,
        };
        let act = |deed: &dyn Fn(&yasmin_segment::sync::Party<'_>) -> Result<(), Error>| {
            attachment.act(|by| deed(by))
        };
        note(act(&|by| body.mutex.lock(by, wait).map(|_| ())));
        note(act(&|by| body.mutex.consistent(by)));
        note(act(&|by| body.mutex.unlock(by)));
        note(act(&|by| body.rwlock.read(by, wait).map(|_| ())));
        note(act(&|by| body.rwlock.unlock(by)));
        note(act(&|by| body.rwlock.write(by, wait).map(|_| ())));
        note(act(&|by| body.rwlock.unlock(by)));
        note(act(&|by| body.semaphore.wait(by, wait)));
        note(act(&|by| body.semaphore.post(by.waiter())));
        note(act(&|by| body.condition.signal(by.waiter())));
        note(act(&|by| body.condition.broadcast(by.waiter())));
        note(act(&|by| body.barrier.wait(by, wait).map(|_| ())));
        note(act(&|by| match body.once.begin(by, wait)? {
            Begun::Done => Ok(()),
            Begun::Make { .. } => body.once.finish(by),
        }));
        note(act(&|by| body.sequence.write(by, wait).map(|_| ())));
        note(act(&|by| body.sequence.finish(by)));
        note(act(&|by| {
            let snapshot = body.sequence.begin()?;
            body.sequence.is_whole(snapshot);
            body.sequence.is_abandoned(attachment.members(), attachment.probe()).map(|_| ())?;
            let _ = by;
            Ok(())
        }));
    }
    assert!(spoiled > 1000 && other > 1000, "{spoiled} {other}");
}

/// What no lock can be is an error at once, and no wait.
#[test]
fn rubbish_is_no_wait() {
    let (file, segment) = segment::<Body>();
    let attachment = attach(&file, segment);
    let words = std::ptr::from_ref(&segment.body).cast_mut().cast::<u64>();
    // A flag that is none; a thread without a member; a slot that is none; a member of the future.
    for rubbish in [8, 1 << 4, 1 << 30 | 4000 << 18 | 1 << 4, 77 << 30 | 1 << 18 | 1 << 4] {
        unsafe { words.write_volatile(rubbish) };
        let result = attachment.act(|by| segment.body.mutex.lock(by, Wait::Forever));
        assert!(matches!(result, Err(Error::Spoiled { .. })), "{rubbish:#x}: {result:?}");
    }
}
