//! What the `oshrun`s of one job, each in a domain of its own, tell each other: a small segment.
//!
//! The one that leads makes it, and takes its name away at the end. Each of the others has a
//! *part*: some of the PEs. Whoever finds that the job must end writes the exit code there, once,
//! and all look every now and then. That one of them was killed, the kernel says, by the sign of
//! life that each member of a segment has. Members are one user's, so they are believed.
//!
//! Or a segment that is there before, as one of the host for several guests: then the board is its
//! beginning, and the PEs' memory lies behind it. One job at a time has it.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use rustix::process::Signal;
use yasmin_segment::sync::{Attachment, Life, Number, Slot, Word};
use yasmin_segment::{At, Broker, Error, Kind, Refusal, Rights};

/// The most domains of a job.
pub const PARTS_MAX: usize = 64;
/// Of this shape; written last.
const VERSION: u64 = 2;
/// Where the PEs' memory begins in a segment that is there before. Its first page is theirs to say
/// whether they are ready.
pub const PES_AT: usize = size_of::<Shape>().next_multiple_of(PAGE);
const PAGE: usize = 4096;
/// A part's word when all of its PEs have ended well; before, its member's number, and 0 at first.
const DONE: u64 = u64::MAX;
/// The word of an end that has this exit code.
const ENDED: u64 = 1 << 8;

/// All zero is a job that nobody leads yet.
#[repr(C)]
struct Shape {
    slots: [Slot; PARTS_MAX + 1],
    version: Word,
    pes: Word,
    parts: Word,
    lead: Word,
    /// The job's, which others have by its name.
    id: Word,
    /// The exit code with which all end, and `ENDED`.
    ended: Word,
    /// The signal that all PEs get, and how many there were before, from bit 8 on.
    asked: Word,
    states: [Word; PARTS_MAX],
}

/// How a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartState {
    /// Nobody has joined for it yet.
    Awaited,
    Runs,
    Done,
    /// Its oshrun is gone, and has not said that it is done.
    Dead,
}

pub struct Board {
    broker: Broker,
    name: String,
    /// In a segment that was there before the job, and stays: the first page of the PEs' memory.
    pes_page: Option<&'static [Word; PAGE / size_of::<Word>()]>,
    shape: &'static Shape,
    own: Attachment<'static>,
    /// None: this one leads.
    part: Option<usize>,
    asked_before: u64,
}

impl Board {
    /// For a job that this process leads.
    pub fn make(broker: Broker, job: &str, pes: u16, parts: usize) -> anyhow::Result<Self> {
        let name = name_of(job);
        let make = |with_creator| {
            let kind = Kind { with_creator, ..Kind::default() };
            broker.create(&name, size_of::<Shape>() as u64, kind)
        };
        match make(true) {
            // Where the broker does not see this process, it cannot tell when it ends.
            Err(Error::Refused { why: Refusal::Unseen, .. }) => make(false)?,
            made => made?,
        }
        let board = Self::open(broker, name, None, false)?;
        board.begin(job, pes, parts)?;
        Ok(board)
    }

    /// The same in a segment of this name.
    pub fn take(
        broker: Broker,
        segment: &str,
        job: &str,
        pes: u16,
        parts: usize,
    ) -> anyhow::Result<Self> {
        let board = Self::open(broker, segment.to_owned(), None, true)?;
        let shape = board.shape;
        let before = shape.lead.load(Ordering::Acquire);
        if before != 0 && board.lives(before) {
            bail!("segment {segment} is another job's, which runs");
        }
        // Whoever led it was killed: its PEs elsewhere end, and write until then.
        if (0..PARTS_MAX).any(|part| board.state(part) == PartState::Runs) {
            bail!("segment {segment} is another job's, which ends; try again in some seconds");
        }
        let own = u64::from(board.own.number()?.bits());
        let (order, else_order) = (Ordering::AcqRel, Ordering::Acquire);
        if shape.lead.compare_exchange(before, own, order, else_order).is_err() {
            bail!("segment {segment} is another job's, which has just begun");
        }
        // What a job before has left. Nobody else is in this one before its version is there.
        shape.version.store(0, Ordering::Release);
        // The PEs wait until their first one has written that page.
        let pes_page = board.pes_page.into_iter().flatten();
        for word in shape.states.iter().chain([&shape.ended, &shape.asked]).chain(pes_page) {
            word.store(0, Ordering::Relaxed);
        }
        board.begin(job, pes, parts)?;
        Ok(board)
    }

    fn begin(&self, job: &str, pes: u16, parts: usize) -> anyhow::Result<()> {
        let (board, shape) = (self, self.shape);
        shape.pes.store(u64::from(pes), Ordering::Relaxed);
        shape.parts.store(parts as u64, Ordering::Relaxed);
        shape.lead.store(u64::from(board.own.number()?.bits()), Ordering::Relaxed);
        shape.id.store(id_of(job), Ordering::Relaxed);
        shape.version.store(VERSION, Ordering::Release);
        Ok(())
    }

    /// For a part of a job that another process leads; with the number of the job's PEs, and of its
    /// parts.
    pub fn join(
        broker: Broker,
        segment: Option<&str>,
        job: &str,
        part: usize,
    ) -> anyhow::Result<(Self, u16, usize)> {
        let name = segment.map_or_else(|| name_of(job), str::to_owned);
        let board = Self::open(broker, name, Some(part), segment.is_some()).with_context(|| {
            format!("job {job} cannot be joined (it may have ended, or have another broker)")
        })?;
        let shape = board.shape;
        if shape.version.load(Ordering::Acquire) != VERSION {
            bail!("job {job} is led by an oshrun of another version");
        }
        if shape.id.load(Ordering::Relaxed) != id_of(job) {
            bail!("job {job} cannot be joined: the segment is another job's by now");
        }
        let peer_pes = shape.pes.load(Ordering::Relaxed);
        let peer_parts = shape.parts.load(Ordering::Relaxed);
        let fits = (1..=PARTS_MAX as u64).contains(&peer_parts) && peer_pes >= peer_parts;
        let (Ok(pes), true) = (u16::try_from(peer_pes), fits) else {
            bail!("job {job} is damaged: {peer_pes} PEs in {peer_parts} domains");
        };
        let parts = peer_parts as usize;
        if part >= parts {
            bail!("job {job} has no part {part}, but 0 to {}", parts - 1);
        }
        let own = u64::from(board.own.number()?.bits());
        let (order, else_order) = (Ordering::AcqRel, Ordering::Acquire);
        if shape.states[part].compare_exchange(0, own, order, else_order).is_err() {
            bail!("part {part} of job {job} has been started already");
        }
        Ok((board, pes, parts))
    }

    fn open(
        broker: Broker,
        name: String,
        part: Option<usize>,
        is_given: bool,
    ) -> anyhow::Result<Self> {
        let segment = broker.open(&name, Rights::Write, false)?;
        let wanted = if is_given { PES_AT + PAGE } else { size_of::<Shape>() };
        if segment.size_bytes() < wanted as u64 {
            bail!("segment {name} has {} bytes: that is no job's", segment.size_bytes());
        }
        let mapping = segment.attach(At::Anywhere)?;
        // SAFETY: inside the mapping, as just seen, aligned to a page, and else as the shape below.
        let pes_page = is_given.then(|| unsafe { &*mapping.as_ptr().byte_add(PES_AT).cast() });
        // SAFETY: mapped for writing, large enough, aligned to a page, never unmapped (below), and
        // of atomics alone, for which all bytes are values.
        let shape: &'static Shape = unsafe { &*mapping.as_ptr().cast::<Shape>() };
        // As long as this process: PEs are told of the job's end to the last moment.
        std::mem::forget(mapping);
        let own = segment.join(&shape.slots).context("cannot take part in the job")?;
        let asked_before = shape.asked.load(Ordering::Acquire);
        Ok(Self { broker, name, pes_page, shape, own, part, asked_before })
    }

    pub const fn leads(&self) -> bool {
        self.part.is_none()
    }

    /// The exit code of the job, if it has to end.
    pub fn ended(&self) -> Option<u8> {
        let word = self.shape.ended.load(Ordering::Acquire);
        (word & ENDED != 0).then_some(word as u8)
    }

    /// Has it end, if nobody else was first. Returns what it ends with.
    pub fn end(&self, code: u8) -> u8 {
        let word = ENDED | u64::from(code);
        let (order, else_order) = (Ordering::AcqRel, Ordering::Acquire);
        match self.shape.ended.compare_exchange(0, word, order, else_order) {
            Ok(_) => code,
            Err(first) => first as u8,
        }
    }

    /// All of this part's PEs have ended well.
    pub fn done(&self) {
        if let Some(part) = self.part {
            self.shape.states[part].store(DONE, Ordering::Release);
        }
    }

    pub fn state(&self, part: usize) -> PartState {
        match self.shape.states[part].load(Ordering::Acquire) {
            0 => PartState::Awaited,
            DONE => PartState::Done,
            member if self.lives(member) => PartState::Runs,
            // It may have said so in its last moment.
            _ if self.shape.states[part].load(Ordering::Acquire) == DONE => PartState::Done,
            _ => PartState::Dead,
        }
    }

    pub fn has_lead(&self) -> bool {
        self.lives(self.shape.lead.load(Ordering::Acquire))
    }

    fn lives(&self, peer_member: u64) -> bool {
        let number = u32::try_from(peer_member).ok().and_then(|bits| Number::try_from(bits).ok());
        let life = number.map(|number| self.own.members().look(number, self.own.probe()));
        matches!(life, Some(Ok(Life::Alive | Life::Unknown)))
    }

    /// Sends all PEs of other parts a signal.
    pub fn ask(&self, signal: Signal) {
        let before = self.shape.asked.load(Ordering::Relaxed) >> 8;
        let raw = u64::from(signal.as_raw().unsigned_abs()) & 0xff;
        self.shape.asked.store((before + 1) << 8 | raw, Ordering::Release);
    }

    /// The signal that this part's PEs get, if one has come since.
    pub fn asked(&mut self) -> Option<Signal> {
        let word = self.shape.asked.load(Ordering::Acquire);
        let is_new = std::mem::replace(&mut self.asked_before, word) != word;
        is_new.then(|| Signal::from_named_raw((word & 0xff) as i32)).flatten()
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        if self.leads() && self.pes_page.is_none() {
            let _ = self.broker.remove(&self.name);
        }
    }
}

/// Told by the job's name in as many bits as a word has (FNV-1a).
fn id_of(job: &str) -> u64 {
    job.bytes().fold(0xcbf2_9ce4_8422_2325, |id, byte| {
        (id ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn name_of(job: &str) -> String {
    format!("oshrun-{job}")
}
