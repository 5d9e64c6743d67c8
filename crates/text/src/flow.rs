//! What the registers hold before an instruction, by every way that leads to it: constants,
//! carried along the instructions of one stretch and its jumps until nothing changes any more.

use crate::decode::{Effect, Instruction, decode};
use crate::find::Jumps;

/// Places of one stretch that jumps lead to. More are not followed.
const PLACES: usize = 1024;
/// Instructions of one stretch that are decoded once; of longer ones the rest is decoded each time.
const DECODED: usize = 384;
/// Times that a stretch is gone through. Each one takes numbers away; few are ever needed.
const ROUNDS: usize = 32;

/// The registers, as far as their numbers are known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Held {
    known: u16,
    numbers: [u32; 16],
}

impl Held {
    const NOTHING: Self = Self { known: 0, numbers: [0; 16] };

    pub fn number(&self, register: usize) -> Option<u32> {
        (self.known >> register & 1 != 0).then(|| self.numbers[register & 15])
    }

    fn set(&mut self, register: u8, number: Option<u32>) {
        let register = usize::from(register & 15);
        self.known &= !(1 << register);
        if let Some(number) = number {
            self.known |= 1 << register;
            self.numbers[register] = number;
        }
    }

    fn apply(&mut self, one: &Instruction, before: Option<&Instruction>, is_trusted: bool) {
        match one.effect(before) {
            Effect::Loads { to, number } => self.set(to, is_trusted.then_some(number)),
            Effect::Copies { from, to } => self.set(to, self.number(usize::from(from & 15))),
            Effect::Writes(these) => self.known &= !these,
        }
    }

    /// What holds here and there.
    fn and(&self, other: &Self) -> Self {
        let mut both = *self;
        both.known &= other.known;
        for register in 0..16 {
            if self.numbers[register] != other.numbers[register] {
                both.known &= !(1 << register);
            }
        }
        both
    }
}

/// A place that jumps lead to.
#[derive(Clone, Copy)]
struct Place {
    at: usize,
    /// `None`: no way that was followed leads here.
    held: Option<Held>,
}

impl Place {
    const NONE: Self = Self { at: 0, held: None };

    /// `held` comes here, too. Whether that changes anything.
    fn meets(&mut self, held: &Held) -> bool {
        let met = self.held.map_or(*held, |before| before.and(held));
        self.held.replace(met) != Some(met)
    }
}

/// nop in its forms, and int3: what stands between pieces of text that nothing leads to.
pub(crate) fn is_padding(instruction: &[u8]) -> bool {
    let prefixes = instruction.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
    matches!(instruction[prefixes..], [0x90 | 0xcc] | [0x0f, 0x1f, ..])
}

/// Whether all of the code is such padding.
pub fn is_all_padding(code: &[u8]) -> bool {
    let mut rest = code;
    while !rest.is_empty() {
        let len = decode(rest).map(|one| one.len_bytes);
        let Some((first, behind)) = len.and_then(|len| rest.split_at_checked(len)) else {
            return false;
        };
        if !is_padding(first) {
            return false;
        }
        rest = behind;
    }
    true
}

/// Room to follow one stretch in; the callers have no memory to allocate.
pub struct Scratch {
    places: [Place; PLACES],
    count: usize,
    /// The first instructions of the stretch.
    decoded: [Option<Instruction>; DECODED],
    decoded_count: usize,
    pub(crate) jumps: Jumps,
}

impl Scratch {
    pub const fn new() -> Self {
        Self {
            places: [Place::NONE; PLACES],
            count: 0,
            decoded: [None; DECODED],
            decoded_count: 0,
            jumps: Jumps::new(),
        }
    }

    /// Before another text, or what may be another one at its place.
    pub fn forget(&mut self) {
        self.jumps = Jumps::new();
    }

    fn add(&mut self, at: usize, held: Option<Held>) -> Option<()> {
        *self.places.get_mut(self.count)? = Place { at, held };
        self.count += 1;
        Some(())
    }

    fn find(&mut self, at: usize) -> Option<&mut Place> {
        let index = self.places[..self.count].binary_search_by_key(&at, |place| place.at).ok()?;
        Some(&mut self.places[index])
    }

    /// The first place at or behind `at`, from `nth` on, in order.
    fn next(&self, nth: usize, at: usize) -> usize {
        let before = |place: &&Place| place.at < at;
        nth + self.places[nth..self.count].iter().take_while(before).count()
    }

    /// Whether there is a place from `nth` on that is before `to`.
    fn has_before(&self, nth: usize, to: usize) -> bool {
        nth < self.count && self.places[nth].at < to
    }

    /// In order, each once; one that is reached from nobody knows where stays that.
    fn sort(&mut self) {
        self.places[..self.count].sort_unstable_by_key(|place| (place.at, place.held.is_none()));
        let mut kept = 0;
        for index in 0..self.count {
            if kept == 0 || self.places[kept - 1].at != self.places[index].at {
                self.places[kept] = self.places[index];
                kept += 1;
            }
        }
        self.count = kept;
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Instructions one behind the other, through the one at `at`.
pub struct Flow<'a> {
    pub code: &'a [u8],
    /// The first byte of an instruction.
    pub start: usize,
    pub at: usize,
    pub end: usize,
    /// Numbers that are loaded before are not believed.
    pub trusted_from: usize,
}

impl Flow<'_> {
    /// What the registers hold before the instruction at `at`, if jumps from elsewhere lead to
    /// `entries`. `None`: that is too much to follow.
    pub fn held(&self, entries: &[usize], scratch: &mut Scratch) -> Option<Held> {
        scratch.count = 0;
        scratch.decoded_count = 0;
        for &entry in entries {
            scratch.add(entry, Some(Held::NOTHING))?;
        }
        let mut from = self.start;
        while from < self.end {
            let one = self.code.get(from..).and_then(decode);
            if let Some(slot) = scratch.decoded.get_mut(scratch.decoded_count) {
                *slot = one;
                scratch.decoded_count += 1;
            }
            let Some(one) = one else { break };
            if let Some(to) = self.target(from, &one) {
                scratch.add(to, None)?;
            }
            from += one.len_bytes;
        }
        scratch.sort();
        // First as if only the ways that are seen led anywhere; then what none of them leads to
        // is taken for reached, by a way that brings nothing.
        let is_settled =
            |scratch: &mut Scratch, all| (0..ROUNDS).any(|_| !self.walk(scratch, all, |_| {}));
        if !is_settled(scratch, false) || !is_settled(scratch, true) {
            return None;
        }
        let mut found = None;
        self.walk(scratch, true, |held| found = Some(*held));
        found
    }

    /// Where a jump inside the stretch leads.
    pub(crate) fn target(&self, from: usize, one: &Instruction) -> Option<usize> {
        let to = usize::try_from(from as i64 + one.jump?).ok()?;
        (to >= self.start && to < self.end).then_some(to)
    }

    /// Goes through the stretch once, and shows what is held at `at`. Whether anything changed.
    fn walk(&self, scratch: &mut Scratch, all: bool, mut see: impl FnMut(&Held)) -> bool {
        let mut changes = false;
        // `None`: nothing leads here.
        let mut held = Some(Held::NOTHING);
        let mut before: Option<Instruction> = None;
        let mut from = self.start;
        let (mut nth, mut next_place) = (0, 0);
        while from < self.end {
            let one = match scratch.decoded[..scratch.decoded_count].get(nth) {
                Some(one) => *one,
                None => self.code.get(from..).and_then(decode),
            };
            let Some(one) = one else { break };
            nth += 1;
            next_place = scratch.next(next_place, from);
            if scratch.has_before(next_place, from + 1) {
                let place = &mut scratch.places[next_place];
                next_place += 1;
                changes |= held.is_some_and(|held| place.meets(&held));
                held = place.held;
            }
            if held.is_none() && all && !is_padding(&self.code[from..from + one.len_bytes]) {
                held = Some(Held::NOTHING);
            }
            if from == self.at
                && let Some(held) = &held
            {
                see(held);
            }
            if let (Some(held), Some(to)) = (&held, self.target(from, &one))
                && let Some(place) = scratch.find(to)
            {
                changes |= place.meets(held);
            }
            if let Some(held) = &mut held {
                held.apply(&one, before.as_ref(), from >= self.trusted_from);
            }
            let next = from + one.len_bytes;
            if scratch.has_before(next_place, next) {
                // Behind a prefix, or into the middle: another instruction ends here as well.
                held = Some(Held::NOTHING);
            } else if one.ends {
                held = None;
            }
            from = next;
            before = Some(one);
        }
        changes
    }
}
