//! A reader of a sequence lock whose mapping it cannot write, while the writer is killed.
#![allow(clippy::undocumented_unsafe_blocks, reason = "test memory")]

mod common;

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use common::{Pipe, Segment, attach, fork, identity, kill, reap, segment};
use yasmin_segment::sync::{Error, FileProbe, Members, Sequence, Wait};

#[repr(C)]
struct Body {
    sequence: Sequence,
    words: [AtomicU64; 2],
}

#[test]
fn reads_and_learns_that_the_writer_died() {
    let (file, segment) = segment::<Body>();
    let len_bytes = size_of::<Segment<Body>>();
    let at = unsafe {
        let fd = file.as_raw_fd();
        libc::mmap(std::ptr::null_mut(), len_bytes, libc::PROT_READ, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(at, libc::MAP_FAILED);
    let view: &Segment<Body> = unsafe { &*at.cast() };
    let (probe, members) = (FileProbe::new(file.as_fd()).unwrap(), Members::new(&view.slots));
    let (half, rest) = (Pipe::new(), Pipe::new());
    let writer = fork(|| {
        let mut attachment = attach(&file, segment);
        attachment.renew(identity()).unwrap();
        for value in 1..=2 {
            let body = &segment.body;
            let _ = attachment.act(|by| body.sequence.write(by, Wait::Forever)).unwrap();
            body.words[0].store(value, Relaxed);
            half.tell();
            rest.hear();
            body.words[1].store(value, Relaxed);
            attachment.act(|by| body.sequence.finish(by)).unwrap();
            half.tell();
        }
    });
    let sequence = &view.body.sequence;
    half.hear();
    assert_eq!(sequence.begin(), Err(Error::Busy));
    assert_eq!(sequence.is_abandoned(members, &probe), Ok(false));
    rest.tell();
    half.hear();
    half.hear();
    // In the middle of the second one.
    assert_eq!(sequence.begin(), Err(Error::Busy));
    kill(writer);
    reap(writer);
    // Another one who may only read would have the dead look alive.
    let reader = std::fs::File::open(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
    let mut all: libc::flock = unsafe { std::mem::zeroed() };
    all.l_type = libc::F_RDLCK as i16;
    assert_eq!(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_OFD_SETLK, &raw const all) }, 0);
    assert_eq!(sequence.is_abandoned(members, &probe), Ok(true));
    drop(reader);
    let attachment = attach(&file, segment);
    let got = attachment.act(|by| segment.body.sequence.write(by, Wait::Forever)).unwrap();
    assert!(got.owner_died);
    for word in &segment.body.words {
        word.store(3, Relaxed);
    }
    attachment.act(|by| segment.body.sequence.finish(by)).unwrap();
    let snapshot = sequence.begin().unwrap();
    assert_eq!(view.body.words.each_ref().map(|word| word.load(Relaxed)), [3, 3]);
    assert!(sequence.is_whole(snapshot));
}
