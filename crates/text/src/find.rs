//! Instructions that enter the kernel, found in text.

use crate::decode::{Effect, Instruction, decode};
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
/// So many jumps ahead are remembered. They lie on the stack of whatever thread looks.
const REMEMBERED: usize = 4;
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

/// What the two bytes at `at` are, which `next` found.
pub fn judge(text: &Text<'_>, at: usize) -> Found {
    let address = text.address.wrapping_add(at as u64);
    let function = text.unwind.and_then(|unwind| unwind.function(address));
    let found = match function.and_then(|function| within(text, function)) {
        Some((start, end)) if at - start <= LONGEST => judge_function(text.code, start, at, end),
        _ if is_data(text, address) => Found::Nothing,
        _ => judge_bytes(text, at, function.is_some()),
    };
    // `int 0x80` has numbers of its own, and is so rare that bytes in no function are data.
    if text.code.get(at) == Some(&0xcd) {
        return match found {
            Found::Call(..) => Found::AnyCall,
            Found::AnyCall if function.is_none() && text.unwind.is_some() => Found::Nothing,
            other => other,
        };
    }
    found
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
fn judge_function(code: &[u8], start: usize, at: usize, end: usize) -> Found {
    let mut from = start;
    while from < at {
        // Data inside a function after all.
        let Some(one) = code.get(from..).and_then(decode) else { return Found::AnyCall };
        from += one.len_bytes;
    }
    if from > at {
        return Found::Nothing;
    }
    let path = Path { code, start, at, end: end.min(at + LONGEST) };
    path.found(start)
}

/// Bytes of which nobody says where a function begins.
fn judge_bytes(text: &Text<'_>, at: usize, is_function: bool) -> Found {
    let code = text.code;
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
            Some(true) => {
                let path = Path { code, start, at, end: at + SHORT_JUMP };
                // Far enough behind the start for decoding to be in step and for all short jumps
                // to be seen.
                return path.found(if first == 0 { 0 } else { start + SHORT_JUMP });
            }
            Some(false) => is_passed = true,
            None => {}
        }
    }
    // Nothing that could be text stands before it. Where functions are described, and this
    // belongs to none, it is a table that somebody put between them.
    let is_table = text.unwind.is_some() && !is_function;
    if is_passed || is_table { Found::Nothing } else { Found::AnyCall }
}

/// Instructions one behind the other, through the one at `at`.
struct Path<'a> {
    code: &'a [u8],
    /// The first byte of an instruction.
    start: usize,
    at: usize,
    end: usize,
}

/// A number that a register holds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Value {
    number: u32,
    loaded_at: usize,
    /// The register that it was loaded into.
    source: u8,
    /// Where it was copied from there; `loaded_at` where it was not.
    copied_at: usize,
}

const RAX: usize = 0;
/// The register of a second argument.
const RSI: usize = 6;

type Registers = [Option<Value>; 16];

fn apply(registers: &mut Registers, at: usize, one: &Instruction, before: Option<&Instruction>) {
    match one.effect(before) {
        Effect::Loads { to, number } => {
            registers[usize::from(to & 15)] =
                Some(Value { number, loaded_at: at, source: to & 15, copied_at: at });
        }
        Effect::Copies { from, to } => {
            let value = registers[usize::from(from & 15)];
            // A copy of a copy is not followed.
            let is_first = value.is_some_and(|value| value.copied_at == value.loaded_at);
            registers[usize::from(to & 15)] =
                value.filter(|_| is_first).map(|value| Value { copied_at: at, ..value });
        }
        Effect::Writes(these) => {
            for (i, register) in registers.iter_mut().enumerate() {
                if these >> i & 1 != 0 {
                    *register = None;
                }
            }
        }
    }
    if one.ends {
        *registers = Registers::default();
    }
}

impl Path<'_> {
    /// Shows each instruction from the start on, with what the registers hold before it.
    fn walk(&self, mut see: impl FnMut(usize, &Instruction, &Registers) -> bool) {
        let mut registers = Registers::default();
        let mut before: Option<Instruction> = None;
        // What the registers held at the last jumps ahead, for what is reached by them alone.
        let mut ahead = [(0, Registers::default()); REMEMBERED];
        let mut turn = 0;
        // Nothing led here from the instruction before.
        let mut is_cut = false;
        let mut from = self.start;
        while from < self.end {
            let Some(one) = self.code.get(from..).and_then(decode) else { return };
            if is_cut && let Some((_, held)) = ahead.iter().find(|(to, _)| *to == from) {
                registers = *held;
                is_cut = false;
            }
            if !see(from, &one, &registers) {
                return;
            }
            if let Some(jump) = one.jump.filter(|jump| *jump > 0) {
                ahead[turn % REMEMBERED] = (from + jump as usize, registers);
                turn += 1;
            }
            apply(&mut registers, from, &one, before.as_ref());
            from += one.len_bytes;
            is_cut |= one.ends;
            before = Some(one);
        }
    }

    /// What the registers hold before the instruction at `place`.
    fn before(&self, place: usize) -> Option<Registers> {
        let mut found = None;
        self.walk(|from, _, held| {
            if from == place {
                found = Some(*held);
            }
            from < place
        });
        found
    }

    /// What the call at `at` is, by numbers that were loaded at or after `first`.
    fn found(&self, first: usize) -> Found {
        let registers = self.before(self.at).unwrap_or_default();
        let number = |register: usize| {
            let value = registers[register].filter(|value| value.loaded_at >= first)?;
            (self.is_same_by_jumps(register, value) && !self.is_reached_from_afar(value))
                .then_some(value.number)
        };
        number(RAX).map_or(Found::AnyCall, |call| Found::Call(call, number(RSI)))
    }

    /// Whether each jump of the path that lands where `value` is expected brings it along.
    fn is_same_by_jumps(&self, register: usize, value: Value) -> bool {
        // From the load to here it is relied upon.
        let mut until = self.at;
        loop {
            let (mut is_same, mut next) = (true, until);
            self.walk(|from, one, registers| {
                let Some(jump) = one.jump else { return true };
                let to = from as i64 + jump;
                if to <= value.loaded_at as i64 || to > until as i64 {
                    return true;
                }
                let is_copied = to > value.copied_at as i64 && to <= self.at as i64;
                let place = if is_copied { register } else { usize::from(value.source) };
                let holds = |held: &Registers| {
                    held[place].is_some_and(|held| held.loaded_at == value.loaded_at)
                };
                if holds(registers) {
                    next = next.max(from);
                } else {
                    // It may also land where nobody relies on the value.
                    is_same &= !self.before(to as usize).is_some_and(|held| holds(&held));
                }
                is_same
            });
            if !is_same || next == until {
                return is_same;
            }
            until = next;
        }
    }

    /// Whether a jump from elsewhere lands between the load and `at`. At any byte: what only
    /// looks like a jump hardly ever lands there.
    fn is_reached_from_afar(&self, value: Value) -> bool {
        let first = self.at.saturating_sub(FAR_JUMPS);
        let last = (self.at + FAR_JUMPS).min(self.code.len());
        let around = self.code.get(first..last).unwrap_or_default();
        around.windows(6).enumerate().any(|(i, bytes)| {
            let from = first + i;
            if bytes[0] != 0xe9 && !(bytes[0] == 0x0f && bytes[1] & 0xf0 == 0x80) {
                return false;
            }
            let len = if bytes[0] == 0xe9 { 5 } else { 6 };
            let distance = [bytes[len - 4], bytes[len - 3], bytes[len - 2], bytes[len - 1]];
            let to = from as i64 + len as i64 + i64::from(i32::from_le_bytes(distance));
            let is_own = from >= self.start && from < self.end;
            !is_own && to > value.loaded_at as i64 && to <= self.at as i64
        })
    }
}
