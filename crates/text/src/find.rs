//! Instructions that enter the kernel, found in text.

use crate::decode::decode;
use crate::flow::{Flow, Scratch};
use crate::unwind::Unwind;

/// So far before a find decoding begins where no function is known, in bytes.
const BEFORE: usize = 384;
/// Only starts at least so far before it have a say: by then decoding is in step.
const SETTLED: usize = 96;
/// Short jumps come from at most so far.
const SHORT_JUMP: usize = 144;
/// No function is followed for longer.
const LONGEST: usize = 256 * 1024;
/// So far around it jumps of other functions are looked for.
const FAR_JUMPS: usize = 2 * 1024 * 1024;
/// So many bytes are compared at once.
const BLOCK: usize = 64;

/// One executable segment of an object, as it is mapped.
#[derive(Clone, Copy)]
pub struct Text<'a> {
    pub code: &'a [u8],
    /// Where `code` begins, in the terms of `unwind`.
    pub address: u64,
    pub unwind: Option<Unwind<'a>>,
}

/// What two bytes that could enter the kernel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Part of something else.
    Nothing,
    /// A system call of this number, with this second argument if that is known too.
    Call(u32, Option<u32>),
    /// A system call, of a number that the instructions before it do not say.
    AnyCall,
}

/// syscall and int 0x80. No branches: this is compiled to vector instructions. (sysenter would
/// not return to 64-bit text.)
const fn enters(first: u8, second: u8) -> bool {
    (first == 0x0f) & (second == 0x05) | (first == 0xcd) & (second == 0x80)
}

/// The next place at or after `from` where two bytes could enter the kernel.
pub fn next(code: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(block) = code.get(at..at.checked_add(BLOCK + 1)?) {
        let mut any = false;
        for i in 0..BLOCK {
            any |= enters(block[i], block[i + 1]);
        }
        if any {
            break;
        }
        at += BLOCK;
    }
    let rest = code.get(at..)?;
    rest.windows(2).position(|pair| enters(pair[0], pair[1])).map(|i| at + i)
}

/// What leads to two bytes that could enter the kernel.
pub(crate) enum Way<'a> {
    /// They are part of something else.
    Nothing,
    /// Nobody knows where instructions begin.
    Unknown,
    Flow(Flow<'a>),
}

/// What the two bytes at `at` are, which `next` found.
pub fn judge(text: &Text<'_>, at: usize, scratch: &mut Scratch) -> Found {
    let found = match way(text, at) {
        Way::Nothing => Found::Nothing,
        Way::Unknown => Found::AnyCall,
        Way::Flow(flow) => found(text, &flow, scratch),
    };
    // `int 0x80` has numbers of its own, and is so rare that bytes in no function are data.
    if text.code.get(at) == Some(&0xcd) {
        let is_outside =
            || text.unwind.is_some_and(|unwind| unwind.function(address(text, at)).is_none());
        return match found {
            Found::Call(..) => Found::AnyCall,
            Found::AnyCall if is_outside() => Found::Nothing,
            other => other,
        };
    }
    found
}

fn address(text: &Text<'_>, at: usize) -> u64 {
    text.address.wrapping_add(at as u64)
}

/// From where and to where instructions may be looked at, at most, to learn what leads to the two bytes at `at`.
pub(crate) fn extent(text: &Text<'_>, at: usize) -> (usize, usize) {
    let function = text.unwind.and_then(|unwind| unwind.function(address(text, at)));
    match function.and_then(|function| within(text, function)) {
        Some((start, end)) if at - start <= LONGEST => (start, end.min(at + LONGEST)),
        _ => (at.saturating_sub(BEFORE), at + SHORT_JUMP),
    }
}

/// What leads to the two bytes at `at`, which `next` found.
pub(crate) fn way<'a>(text: &Text<'a>, at: usize) -> Way<'a> {
    let address = address(text, at);
    let function = text.unwind.and_then(|unwind| unwind.function(address));
    match function.and_then(|function| within(text, function)) {
        Some((start, end)) if at - start <= LONGEST => way_in_function(text, start, at, end),
        _ if is_data(text, address) => Way::Nothing,
        _ => way_in_bytes(text, at, function.is_some()),
    }
}

/// Linkers that save pages put data into the same segment as the text, and the file's header
/// before all. The functions that are described then stand together. (In a segment of text alone
/// others may stand before or behind them: Go describes its functions elsewhere.)
fn is_data(text: &Text<'_>, address: u64) -> bool {
    text.code.starts_with(b"\x7fELF") && text.unwind.is_some_and(|unwind| !unwind.spans(address))
}

/// A function's place in the code.
fn within(text: &Text<'_>, (start, end): (u64, u64)) -> Option<(usize, usize)> {
    let start = usize::try_from(start.checked_sub(text.address)?).ok()?;
    let end = usize::try_from(end.checked_sub(text.address)?).ok()?;
    Some((start, end.min(text.code.len())))
}

/// Compilers put nothing but instructions between a function's first byte and its last one.
fn way_in_function<'a>(text: &Text<'a>, start: usize, at: usize, end: usize) -> Way<'a> {
    let code = text.code;
    let mut from = start;
    while from < at {
        // Data inside a function after all.
        let Some(one) = code.get(from..).and_then(decode) else { return Way::Unknown };
        from += one.len_bytes;
    }
    if from > at {
        return Way::Nothing;
    }
    let end = end.min(at + LONGEST);
    Way::Flow(Flow { code, start, at, end, trusted_from: start })
}

/// Bytes of which nobody says where a function begins.
fn way_in_bytes<'a>(text: &Text<'a>, at: usize, is_function: bool) -> Way<'a> {
    let code = text.code;
    // Nothing that could be text stands before it. Where functions are described, and this
    // belongs to none, it is a table that somebody put between them.
    let is_table = text.unwind.is_some() && !is_function;
    match steps_to(code, at) {
        Steps::Come(start) => {
            // Far enough behind the start for decoding to be in step and for all short jumps
            // to be seen.
            let trusted_from = if start == 0 { 0 } else { start + SHORT_JUMP };
            Way::Flow(Flow { code, start, at, end: at + SHORT_JUMP, trusted_from })
        }
        Steps::Pass => Way::Nothing,
        Steps::End if is_table => Way::Nothing,
        Steps::End => Way::Unknown,
    }
}

/// Where decoding leads that began so far before a place that it is in step with the instructions by then.
enum Steps {
    /// To it, from here.
    Come(usize),
    /// Past it: it is inside of an instruction.
    Pass,
    /// Not so far.
    End,
}

fn steps_to(code: &[u8], at: usize) -> Steps {
    let first = at.saturating_sub(BEFORE);
    // Whether decoding from `first + i` comes to `at`; `None`: it does not get so far.
    let mut comes = [None; BEFORE + 1];
    comes[at - first] = Some(true);
    for from in (first..at).rev() {
        comes[from - first] = match code.get(from..).and_then(decode) {
            Some(one) if one.is_odd => None,
            Some(one) if from + one.len_bytes > at => Some(false),
            Some(one) => comes[from + one.len_bytes - first],
            None => None,
        };
    }
    let settled = if first == 0 { 0..=0 } else { first..=at - SETTLED };
    let mut is_passed = false;
    for start in settled {
        match comes[start - first] {
            Some(true) => return Steps::Come(start),
            Some(false) => is_passed = true,
            None => {}
        }
    }
    if is_passed { Steps::Pass } else { Steps::End }
}

const RAX: usize = 0;
/// The register of a second argument.
const RSI: usize = 6;

/// Jumps into one stretch from elsewhere that are followed.
const ENTRIES: usize = 8;

/// What the call is to which `flow` leads.
fn found(text: &Text<'_>, flow: &Flow<'_>, scratch: &mut Scratch) -> Found {
    let Some(found) = call(flow, &[], scratch) else { return Found::AnyCall };
    // To look for these takes longest.
    let mut entries = Entries::new();
    if entries_from_afar(text, flow, &mut scratch.jumps, |to| entries.add(to)).is_none() {
        return Found::AnyCall;
    }
    entries.found(found, flow, scratch)
}

fn call(flow: &Flow<'_>, entries: &[usize], scratch: &mut Scratch) -> Option<Found> {
    let held = flow.held(entries, scratch)?;
    Some(Found::Call(held.number(RAX)?, held.number(RSI)))
}

/// The same, where `jumps` says which jumps from elsewhere lead into the stretch.
pub(crate) fn found_with(
    flow: &Flow<'_>,
    mut jumps: impl Iterator<Item = usize>,
    scratch: &mut Scratch,
) -> Found {
    let Some(found) = call(flow, &[], scratch) else { return Found::AnyCall };
    let mut entries = Entries::new();
    if jumps.try_for_each(|to| entries.add(to)).is_none() {
        return Found::AnyCall;
    }
    entries.found(found, flow, scratch)
}

/// Where jumps from elsewhere lead into one stretch.
struct Entries {
    places: [usize; ENTRIES],
    count: usize,
}

impl Entries {
    const fn new() -> Self {
        Self { places: [0; ENTRIES], count: 0 }
    }

    /// `None`: they are too many to follow.
    fn add(&mut self, to: usize) -> Option<()> {
        *self.places.get_mut(self.count)? = to;
        self.count += 1;
        Some(())
    }

    /// What the call is, which is `found` where none of these leads.
    fn found(&self, found: Found, flow: &Flow<'_>, scratch: &mut Scratch) -> Found {
        match self.count {
            0 => found,
            count => call(flow, &self.places[..count], scratch).unwrap_or(Found::AnyCall),
        }
    }
}

/// Where jumps lead into a part of the text from outside of it. A program with system calls of its own has
/// many of them in one place, and to look for such jumps takes a millisecond.
pub struct Jumps {
    /// Which text, by its address in memory and its length.
    text: (usize, usize),
    /// The part's beginning and end; equal: none yet.
    part: (usize, usize),
    targets: [usize; Self::MOST],
    /// More than there is room for: there are too many.
    count: usize,
}

impl Jumps {
    const MOST: usize = 256;
    const PART: usize = 8 * 1024;

    pub const fn new() -> Self {
        Self { text: (0, 0), part: (0, 0), targets: [0; Self::MOST], count: 0 }
    }

    /// Those into a part around the stretch from `start` to `end`; `None` where they are too many, or the
    /// stretch is too long.
    fn around(&mut self, text: &Text<'_>, start: usize, end: usize) -> Option<&[usize]> {
        let first = start / (Self::PART / 2) * (Self::PART / 2);
        let part = (first, first + Self::PART);
        if end > part.1 {
            return None;
        }
        let code = (text.code.as_ptr() as usize, text.code.len());
        if self.part != part || self.text != code {
            (self.text, self.part, self.count) = (code, part, 0);
            let (from, until) = (first.saturating_sub(FAR_JUMPS), part.1 + FAR_JUMPS);
            for target in jumps_into(text, part, from, until).take(Self::MOST + 1) {
                if let Some(slot) = self.targets.get_mut(self.count) {
                    *slot = target;
                }
                self.count += 1;
            }
        }
        self.targets.get(..self.count)
    }
}

/// Shows `add` where jumps from elsewhere lead into the stretch, behind its beginning, until it has enough.
fn entries_from_afar(
    text: &Text<'_>,
    flow: &Flow<'_>,
    known: &mut Jumps,
    mut add: impl FnMut(usize) -> Option<()>,
) -> Option<()> {
    let stretch = (flow.start, flow.end);
    let leads_in = |&target: &usize| target > stretch.0 && target < stretch.1;
    if let Some(targets) = known.around(text, stretch.0, stretch.1) {
        targets.iter().copied().filter(leads_in).try_for_each(&mut add)?;
        let part = known.part;
        jumps_into(text, stretch, part.0, part.1 + LONGEST_JUMP - 1)
            .filter(leads_in)
            .try_for_each(&mut add)?;
    } else {
        let (first, last) = (flow.at.saturating_sub(FAR_JUMPS), flow.at + FAR_JUMPS);
        jumps_into(text, stretch, first, last).filter(leads_in).try_for_each(&mut add)?;
    }
    Some(())
}

/// A conditional one.
const LONGEST_JUMP: usize = 6;

/// Where the jumps that lie between `first` and `last` lead in `part`, but for those that begin there.
fn jumps_into(
    text: &Text<'_>,
    part: (usize, usize),
    first: usize,
    last: usize,
) -> impl Iterator<Item = usize> {
    let around = text.code.get(first..last.min(text.code.len())).unwrap_or_default();
    long_jumps(around).filter_map(move |(i, distance)| {
        let from = first + i;
        let to = first as i64 + distance;
        let is_own = from >= part.0 && from < part.1;
        let leads_in = !is_own && to >= part.0 as i64 && to < part.1 as i64;
        (leads_in && may_begin(text, from)).then_some(to as usize)
    })
}

/// All bytes that could be long jumps: where they begin, and where they lead, both counted from the code's first
/// byte.
pub(crate) fn long_jumps(code: &[u8]) -> impl Iterator<Item = (usize, i64)> {
    // Of the last block a conditional jump's second byte is not there to be looked at.
    let blocks = code.len().saturating_sub(1) / BLOCK;
    let in_blocks = (0..blocks).flat_map(move |nth| {
        let block = code.get(nth * BLOCK..).and_then(|rest| rest.first_chunk());
        let marked = block.map_or(0, jumps_of);
        ones(marked).map(move |bit| nth * BLOCK + bit)
    });
    in_blocks.chain(blocks * BLOCK..code.len()).filter_map(|from| {
        let bytes: &[u8; LONGEST_JUMP] = code.get(from..)?.first_chunk()?;
        if bytes[0] != 0xe9 && !(bytes[0] == 0x0f && bytes[1] & 0xf0 == 0x80) {
            return None;
        }
        let len = if bytes[0] == 0xe9 { 5 } else { 6 };
        let distance = [bytes[len - 4], bytes[len - 3], bytes[len - 2], bytes[len - 1]];
        Some((from, from as i64 + len as i64 + i64::from(i32::from_le_bytes(distance))))
    })
}

/// A bit for each byte of a block that could begin a long jump. The byte behind it is there, too.
#[inline]
fn jumps_of(block: &[u8; BLOCK + 1]) -> u64 {
    const WORD: usize = size_of::<u64>();
    // No branches: this is compiled to vector instructions.
    let mut marked = [0_u8; BLOCK];
    for (i, mark) in marked.iter_mut().enumerate() {
        let (first, second) = (block[i], block[i + 1]);
        *mark = u8::from((first == 0xe9) | (first == 0x0f) & (second & 0xf0 == 0x80));
    }
    // The product has bit 8 * i of the word at its bit 56 + i, and no two of its sums meet.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let words = marked.as_chunks::<WORD>().0.iter().enumerate();
    words.fold(0, |bits, (nth, word)| {
        let gathered = u64::from_le_bytes(*word).wrapping_mul(GATHER) >> 56;
        bits | gathered << (nth * WORD)
    })
}

/// Which bits are set, the lowest first.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(lowest)
    })
}

/// Whether an instruction may begin at `at`, for all that its function says, or the bytes before it do.
pub(crate) fn may_begin(text: &Text<'_>, at: usize) -> bool {
    let address = text.address.wrapping_add(at as u64);
    let function = text.unwind.and_then(|unwind| unwind.function(address));
    let function = function.and_then(|function| within(text, function));
    let Some((mut from, _)) = function.filter(|(from, _)| at - from <= LONGEST) else {
        return !matches!(steps_to(text.code, at), Steps::Pass);
    };
    while from < at {
        let Some(one) = text.code.get(from..).and_then(decode) else { return true };
        from += one.len_bytes;
    }
    from == at
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use proptest::prelude::*;

    use super::long_jumps;

    proptest! {
        /// By every byte, as bytes that are much like jumps come.
        #[test]
        fn long_jumps_are_found_at_every_place(
            code in prop::collection::vec(prop_oneof![Just(0x0f), Just(0xe9), Just(0x84), any::<u8>()], 0..200)
        ) {
            let found: Vec<_> = long_jumps(&code).map(|(from, _)| from).collect();
            let is_jump = |bytes: &[u8]| bytes[0] == 0xe9 || bytes[0] == 0x0f && (0x80..0x90).contains(&bytes[1]);
            let places = code.windows(6).enumerate();
            let known: Vec<_> = places.filter(|(_, bytes)| is_jump(bytes)).map(|(from, _)| from).collect();
            prop_assert_eq!(found, known);
        }
    }
}
