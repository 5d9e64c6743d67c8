//! Queued signals that were put off, in the order in which they came.
//!
//! Real-time signals of one number are handled in the order in which they were sent, and each has its own
//! siginfo. One that is put off (`held`) is sent once more, which puts it behind those of its number that
//! are pending already. So its siginfo is kept here as well, and what is sent is marked as its *carrier*.
//! Whatever comes first of that number then hands over the siginfo that was kept longest, and leaves its own
//! in its place; a carrier leaves nothing.
//!
//! What must stay true: a thread has as many carriers pending as it keeps siginfos.
//!
//! Storey 1: system.

use core::arch::{asm, global_asm};
use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::held::{SA_SIGINFO, SIG_IGN};
use crate::sys::{self, call};
use crate::thread::by_block;
use crate::{fault, held, process};

/// What the kernel carries of a siginfo (include/linux/signal_types.h, struct kernel_siginfo), in words.
const WORDS: usize = 6;
type Info = [u64; WORDS];

/// A carrier has this in its last word, which only siginfos of faults use.
const MARK: u64 = 0x9e0c_61a7_d37f_2b85;

/// Lower numbers are not queued, or libc's.
const FIRST_QUEUED: c_int = 34;
const LAST_QUEUED: c_int = 64;

/// One is put off at a time, and handled before the next is, unless a handler lets its own signal
/// interrupt it. What finds no room takes its turn behind the others.
const ROOM: usize = 3;

#[repr(C)]
struct Line {
    /// So many are kept. The entries in front of handlers look at it.
    count: u32,
    /// A vfork child has its parent's line, a fork's child a copy of it; neither has the carriers.
    owner: u32,
    kept: [Info; ROOM],
    /// `FLUSHES` of their time.
    flushes: [u32; ROOM],
}

const _: () = assert!(size_of::<Line>() == 168);

global_asm!(
    ".pushsection .tbss,\"awT\",@nobits",
    ".balign 8",
    ".globl yasmin_delayed",
    ".hidden yasmin_delayed",
    ".type yasmin_delayed, @object",
    ".size yasmin_delayed, 168",
    "yasmin_delayed:",
    ".zero 168",
    ".popsection",
);

/// So often the kernel dropped what was pending of a signal, carriers too, since the program ignored it.
static FLUSHES: [AtomicU32; LAST_QUEUED as usize + 1] =
    [const { AtomicU32::new(0) }; LAST_QUEUED as usize + 1];

/// This thread's line. Its signals are blocked.
fn line() -> &'static mut Line {
    let at: *mut Line;
    // SAFETY: all zero is a line, and one reference is used at a time.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + yasmin_delayed@GOTTPOFF]",
            by_block!(),
            "add {at}, qword ptr fs:[0]",
            at = out(reg) at,
            options(nostack, readonly),
        );
        &mut *at
    }
}

fn flushes_of(signal: c_int) -> u32 {
    FLUSHES.get(signal as usize).map_or(0, |flushes| flushes.load(Ordering::SeqCst))
}

/// The program ignores `signal` from now on.
pub fn flushed(signal: c_int) {
    if let Some(flushes) = FLUSHES.get(signal as usize) {
        flushes.fetch_add(1, Ordering::SeqCst);
    }
}

impl Line {
    fn push(&mut self, signal: c_int, info: Info) -> bool {
        let at = self.count as usize;
        let has_room = at < ROOM;
        if has_room {
            self.kept[at] = info;
            self.flushes[at] = flushes_of(signal);
            self.count += 1;
        }
        has_room
    }

    fn remove(&mut self, at: usize) -> Info {
        let info = self.kept[at];
        let count = self.count as usize;
        self.kept.copy_within(at + 1..count, at);
        self.flushes.copy_within(at + 1..count, at);
        self.count -= 1;
        info
    }

    fn first(&self, signal: c_int) -> Option<usize> {
        self.kept[..self.count as usize].iter().position(|kept| kept[0] as c_int == signal)
    }

    /// The kernel dropped their carriers, or nobody sees a siginfo of theirs.
    fn drop_if(&mut self, signal: c_int, is_all: bool) {
        let flushes = flushes_of(signal);
        for at in (0..self.count as usize).rev() {
            if self.kept[at][0] as c_int == signal && (is_all || self.flushes[at] != flushes) {
                self.remove(at);
            }
        }
    }
}

/// Sends this thread a signal once more, which is being put off. False: the kernel's queue is full.
/// All signals are blocked.
///
/// # Safety
/// The kernel's siginfo of a handler that asked for one.
pub unsafe fn send_again(signal: c_int, info: *const Info) -> bool {
    let (pid, thread) = (sys::getpid(), sys::gettid());
    // SAFETY: as above.
    let info = unsafe { *info };
    let mut sent = [0u64; 16];
    sent[..WORDS].copy_from_slice(&info);
    let mut is_kept = false;
    if (FIRST_QUEUED..=LAST_QUEUED).contains(&signal) && !process::is_borrowed() {
        let line = line();
        if line.owner != thread {
            (line.count, line.owner) = (0, thread);
        }
        line.drop_if(signal, false);
        is_kept = sent[WORDS - 1] != MARK && line.push(signal, info);
        if is_kept {
            sent[WORDS - 1] = MARK;
        }
    }
    // SAFETY: a struct siginfo, of 128 bytes.
    let is_sent = unsafe { call!(rt_tgsigqueueinfo, pid, thread, signal, sent.as_ptr()) } == 0;
    if is_kept && !is_sent {
        line().count -= 1;
    }
    is_sent
}

/// A handler is about to run in a thread that keeps siginfos: it gets the one whose turn it is.
///
/// # Safety
/// The kernel's arguments of a handler.
pub unsafe extern "C" fn take_turn(signal: c_int, info: *mut Info) {
    if !(FIRST_QUEUED..=LAST_QUEUED).contains(&signal) {
        return;
    }
    let before = held::block_all();
    let line = line();
    if line.owner == sys::gettid() {
        // The action of a handler that runs once is the default one by now.
        let has_info = fault::kernel_action(signal)
            .is_none_or(|action| action[0] <= SIG_IGN || action[1] & SA_SIGINFO != 0);
        line.drop_if(signal, !has_info);
        if has_info {
            // SAFETY: a struct siginfo, which the kernel wrote.
            let info = unsafe { &mut *info };
            let is_carrier = info[WORDS - 1] == MARK;
            if let Some(at) = line.first(signal) {
                let oldest = line.remove(at);
                if !is_carrier {
                    line.push(signal, *info);
                }
                *info = oldest;
            } else if is_carrier {
                info[WORDS - 1] = 0;
            }
        }
    }
    held::set_mask(before);
}
