//! What the `oshrun`s of one job, each in a domain of its own, tell each other: a small segment.
//!
//! The one that leads makes it, and takes its name away at the end. Each of the others has a
//! *part*: some of the PEs. Whoever finds that the job must end writes the exit code there, once,
//! and all look every now and then. That one of them was killed, the kernel says, by the sign of
//! life that each member of a segment has. Members are one user's, so they are believed.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;

use anyhow::{Context, bail};
use rustix::process::Signal;
use yasmin_segment::sync::{Attachment, Life, Number, Slot, Word};
use yasmin_segment::{At, Broker, Error, Kind, Refusal, Rights};

/// The most domains of a job.
pub const PARTS_MAX: usize = 64;
/// Of this shape; written last.
const VERSION: u64 = 1;
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
        let board = Self::open(broker, name, None)?;
        let shape = board.shape;
        shape.pes.store(u64::from(pes), Ordering::Relaxed);
        shape.parts.store(parts as u64, Ordering::Relaxed);
        shape.lead.store(u64::from(board.own.number()?.bits()), Ordering::Relaxed);
        shape.version.store(VERSION, Ordering::Release);
        Ok(board)
    }

    /// For a part of a job that another process leads; with the number of the job's PEs, and of its
    /// parts.
    pub fn join(broker: Broker, job: &str, part: usize) -> anyhow::Result<(Self, u16, usize)> {
        let board = Self::open(broker, name_of(job), Some(part)).with_context(|| {
            format!("job {job} cannot be joined (it may have ended, or have another broker)")
        })?;
        let shape = board.shape;
        if shape.version.load(Ordering::Acquire) != VERSION {
            bail!("job {job} is led by an oshrun of another version");
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

    fn open(broker: Broker, name: String, part: Option<usize>) -> anyhow::Result<Self> {
        let segment = broker.open(&name, Rights::Write, false)?;
        if segment.size_bytes() < size_of::<Shape>() as u64 {
            bail!("segment {name} is no job's");
        }
        let mapping = segment.attach(At::Anywhere)?;
        // SAFETY: mapped for writing, large enough, aligned to a page, never unmapped (below), and
        // of atomics alone, for which all bytes are values.
        let shape: &'static Shape = unsafe { &*mapping.as_ptr().cast::<Shape>() };
        // As long as this process: PEs are told of the job's end to the last moment.
        std::mem::forget(mapping);
        let own = segment.join(&shape.slots).context("cannot take part in the job")?;
        let asked_before = shape.asked.load(Ordering::Acquire);
        Ok(Self { broker, name, shape, own, part, asked_before })
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
        if self.leads() {
            let _ = self.broker.remove(&self.name);
        }
    }
}

fn name_of(job: &str) -> String {
    format!("oshrun-{job}")
}
