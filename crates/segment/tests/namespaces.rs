//! Processes of two PID namespaces, in which both have process and thread id 1.
#![allow(clippy::undocumented_unsafe_blocks, reason = "test processes, one block a call")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::{Pipe, Segment, attach, fork, identity, kill, reap, segment, sleep_us, soon};
use yasmin_segment::sync::{Attachment, Error, Mutex, Wait};

#[repr(C)]
struct Body {
    mutex: Mutex,
    turn: AtomicU64,
}

/// Runs `act` as process 1 of a new namespace, which dies with the process that is returned.
fn in_namespace(act: impl FnOnce()) -> i32 {
    fork(|| {
        if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
            panic!("unshare: {}; this test needs root", std::io::Error::last_os_error());
        }
        let first = fork(|| {
            assert_eq!(std::process::id(), 1);
            act();
        });
        unsafe { libc::_exit(reap(first).unwrap_or(102)) };
    })
}

fn is_root() -> bool {
    let is_root = unsafe { libc::geteuid() } == 0;
    if !is_root {
        eprintln!("left out: a new PID namespace needs root");
    }
    is_root
}

fn renewed(file: &std::fs::File, segment: &'static Segment<Body>) -> Attachment<'static> {
    let mut attachment = attach(file, segment);
    attachment.renew(identity()).unwrap();
    attachment
}

#[test]
fn the_lock_goes_to_and_fro() {
    if !is_root() {
        return;
    }
    let (file, segment) = segment::<Body>();
    let body = &segment.body;
    let player = |side: u64| {
        let attachment = renewed(&file, segment);
        let mut last = 0;
        while last < 200 {
            attachment
                .act(|by| {
                    let got = body.mutex.lock(by, soon(20_000))?;
                    assert!(!got.owner_died);
                    last = body.turn.load(Relaxed);
                    if last % 2 == side {
                        body.turn.store(last + 1, Relaxed);
                    }
                    body.mutex.unlock(by)?;
                    assert_eq!(body.mutex.unlock(by), Err(Error::NotOwner));
                    Ok(())
                })
                .unwrap();
        }
    };
    let players = [0, 1].map(|side| in_namespace(|| player(side)));
    assert_eq!(players.map(reap), [Some(0), Some(0)]);
}

#[test]
fn a_holder_dies_in_another_namespace() {
    if !is_root() {
        return;
    }
    let (file, segment) = segment::<Body>();
    let mutex = &segment.body.mutex;
    let (held, waiting) = (Pipe::new(), Pipe::new());
    let holder = in_namespace(|| {
        let attachment = renewed(&file, segment);
        let _ = attachment.act(|by| mutex.lock(by, Wait::Forever)).unwrap();
        held.tell();
        loop {
            unsafe { libc::pause() };
        }
    });
    held.hear();
    // One with the same ids waits, and dies while it does: the holder still has it.
    let wait_for_it = |dies: bool| {
        in_namespace(|| {
            let attachment = renewed(&file, segment);
            waiting.tell();
            attachment
                .act(|by| {
                    let got = mutex.lock(by, Wait::Forever)?;
                    assert!(got.owner_died && !dies);
                    mutex.consistent(by)?;
                    mutex.unlock(by)
                })
                .unwrap();
        })
    };
    let dying = wait_for_it(true);
    waiting.hear();
    sleep_us(20_000);
    kill(dying);
    reap(dying);
    sleep_us(20_000);
    let attachment = attach(&file, segment);
    assert_eq!(attachment.act(|by| mutex.lock(by, Wait::No)), Err(Error::Busy));
    let next = wait_for_it(false);
    waiting.hear();
    kill(holder);
    reap(holder);
    assert_eq!(reap(next), Some(0));
}

/// A member that was declared dead while it was paused learns so.
#[test]
fn a_paused_member_comes_back() {
    let (file, segment) = segment::<Body>();
    let body = &segment.body;
    let (held, go) = (Pipe::new(), Pipe::new());
    let paused = fork(|| {
        let attachment = renewed(&file, segment);
        let got = attachment.act(|by| body.mutex.lock(by, Wait::Forever)).unwrap();
        body.turn.store(attachment.number().unwrap().bits().into(), Relaxed);
        held.tell();
        go.hear();
        assert_eq!(got.fence, 1);
        assert_eq!(attachment.act(|by| body.mutex.unlock(by)), Err(Error::Fenced));
        assert_eq!(attachment.act(|by| body.mutex.lock(by, Wait::Forever)), Err(Error::Fenced));
    });
    held.hear();
    let attachment = attach(&file, segment);
    let bits = body.turn.load(Relaxed) as u32;
    let paused_number = yasmin_segment::sync::Number::try_from(bits).unwrap();
    assert!(attachment.members().declare_dead(paused_number));
    let got = attachment.act(|by| body.mutex.lock(by, soon(10_000))).unwrap();
    assert!(got.owner_died && got.fence == 2, "{got:?}");
    attachment.act(|by| body.mutex.consistent(by)).unwrap();
    attachment.act(|by| body.mutex.unlock(by)).unwrap();
    go.tell();
    assert_eq!(reap(paused), Some(0));
    let got = attachment.act(|by| body.mutex.lock(by, soon(10_000))).unwrap();
    assert!(!got.owner_died);
}
