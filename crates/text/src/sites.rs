//! Where a program's own instructions that enter the kernel can get a detour: a jump takes five bytes, the
//! instruction has two, so others around it have to move.
//!
//! What moves does the same elsewhere, and nothing jumps behind the jump's first byte: all direct jumps around
//! are looked at. (Indirect ones lead to the cases of a switch. Compilers begin none with a bare `syscall`, and
//! none with what comes after one.)

use crate::decode::decode;
use crate::find::{self, Found, Text, Way};
use crate::flow::{Flow, Scratch, is_padding};
use crate::number::is_seen;

/// A relative jump, in bytes.
pub const JUMP: usize = 5;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Instructions that may move, before it and behind it.
const MOST: usize = 4;

/// An instruction that enters the kernel, and what is around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// Where the instruction begins in the text, in bytes.
    pub at: usize,
    /// What may be overwritten before it, in bytes; it is to be moved.
    pub lead_bytes: usize,
    /// The instruction and what has to be moved with it, in bytes. What is moved neither jumps nor asks
    /// where it stands, so it does the same elsewhere; nothing jumps to it.
    pub len_bytes: usize,
}

impl Site {
    pub const NONE: Self = Self { at: 0, lead_bytes: 0, len_bytes: 0 };

    /// What is overwritten ends here.
    pub const fn end(&self) -> usize {
        self.at + self.len_bytes
    }

    /// Whether the code has an instruction there, and what moves with it can, for all that these bytes say. `free_from`:
    /// where the one before it ends.
    pub fn fits(&self, code: &[u8], free_from: usize) -> bool {
        let from = self.at.checked_sub(self.lead_bytes).filter(|from| *from >= free_from);
        let to = self.at.checked_add(self.len_bytes).filter(|to| *to <= code.len());
        let (Some(from), Some(to)) = (from, to) else { return false };
        let behind = self.at + SYSCALL.len();
        to - from >= JUMP
            && to >= behind
            && code[self.at..].starts_with(&SYSCALL)
            && may_move(code, from, self.at)
            && may_move(code, behind, to)
    }
}

/// Whether there are whole instructions between these places, few, and each can move.
fn may_move(code: &[u8], mut from: usize, to: usize) -> bool {
    for _ in 0..MOST {
        if from >= to {
            break;
        }
        match code.get(from..).and_then(decode) {
            Some(one) if !one.is_bound => from += one.len_bytes,
            _ => return false,
        }
    }
    from == to
}

/// Why a program's calls cannot all be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An instruction's number is not known, or it is no ordinary one.
    Unclear,
    /// The bytes around an instruction cannot move.
    NoRoom,
    /// The text asks where an instruction, or what is behind it, stands: a program may tell by that address
    /// which calls its sandbox lets through (seccomp), as Chromium does.
    IsNamed,
    /// More than there is room for.
    TooMany,
    /// Threads are cancelled by where they stand: musl's `__syscall_cp_asm`, which is there where
    /// pthread_cancel is.
    Cancels,
}

/// So many words, all zero, `all` needs to note what it finds on its way.
pub const ROOM: usize = PAGES / 64 + JUMPS;
const PAGE: usize = 4096;
/// Of the longest text that is looked at: 256 MiB.
const PAGES: usize = 64 * 1024;
const JUMPS: usize = 128 * 1024;

/// The pages of the text that have stretches which lead to instructions entering the kernel, a bit each.
struct Pages<'a>(&'a mut [u64]);

impl Pages<'_> {
    fn mark(&mut self, start: usize, end: usize) {
        for page in start / PAGE..=end / PAGE {
            if let Some(word) = self.0.get_mut(page / 64) {
                *word |= 1 << (page % 64);
            }
        }
    }

    fn is_marked(&self, at: i64) -> bool {
        let page = usize::try_from(at).unwrap_or(usize::MAX) / PAGE;
        self.0.get(page / 64).is_some_and(|word| word >> (page % 64) & 1 != 0)
    }
}

/// A direct jump: where it leads, and where it stands, in one word, so that words in order are jumps in order.
#[derive(Clone, Copy)]
struct Jump(u64);

impl Jump {
    fn new(from: usize, to: i64) -> Self {
        Self((to as u64) << 32 | from as u64)
    }

    fn to(self) -> usize {
        (self.0 >> 32) as usize
    }

    fn from(self) -> usize {
        self.0 as u32 as usize
    }
}

/// All long jumps that lead to marked pages, in order: the text is gone through once.
fn find_jumps<'a>(
    code: &[u8],
    pages: &Pages<'_>,
    jumps: &'a mut [u64],
) -> Result<&'a [u64], Refusal> {
    let mut count = 0;
    for (from, to) in find::long_jumps(code).filter(|(_, to)| pages.is_marked(*to)) {
        *jumps.get_mut(count).ok_or(Refusal::TooMany)? = Jump::new(from, to).0;
        count += 1;
    }
    jumps[..count].sort_unstable();
    Ok(&jumps[..count])
}

/// Where jumps from outside the stretch lead behind `start` and before `end`.
fn entries<'a>(
    text: &'a Text<'_>,
    flow: &'a Flow<'_>,
    jumps: &'a [u64],
    (start, end): (usize, usize),
) -> impl Iterator<Item = usize> + 'a {
    let first = jumps.partition_point(|jump| Jump(*jump).to() <= start);
    let leads_in = jumps[first..].iter().map(|jump| Jump(*jump));
    let is_foreign = |from: usize| from < flow.start || from >= flow.end;
    leads_in
        .take_while(move |jump| jump.to() < end)
        .filter(move |jump| is_foreign(jump.from()) && find::may_begin(text, jump.from()))
        .map(Jump::to)
}

/// All instructions of this text that may make a call which is to be seen (`is_seen`), in order. `room`: ROOM
/// words, all zero.
///
/// # Errors
/// One of them cannot get a detour.
pub fn all(text: &Text<'_>, room: &mut [u64], sites: &mut [Site]) -> Result<usize, Refusal> {
    let (code, scratch) = (text.code, &mut Scratch::new());
    if code.len() > PAGES * PAGE || room.len() < ROOM {
        return Err(Refusal::TooMany);
    }
    let (pages, jumps) = room.split_at_mut(PAGES / 64);
    let mut pages = Pages(pages);
    let mut from = 0;
    while let Some(at) = find::next(code, from) {
        from = at + 1;
        let (start, end) = find::extent(text, at);
        pages.mark(start, end);
    }
    let jumps = find_jumps(code, &pages, jumps)?;
    let (mut count, mut from) = (0usize, 0);
    while let Some(at) = find::next(code, from) {
        from = at + 1;
        let flow = match find::way(text, at) {
            Way::Nothing => continue,
            Way::Unknown => return Err(Refusal::Unclear),
            Way::Flow(flow) => flow,
        };
        if !code[at..].starts_with(&SYSCALL) {
            match find::judge(text, at, scratch) {
                Found::Nothing => continue,
                _ => return Err(Refusal::Unclear),
            }
        }
        let entries = entries(text, &flow, jumps, (flow.start, flow.end));
        match find::found_with(&flow, entries, scratch) {
            Found::Nothing => continue,
            Found::Call(number, _) if !is_seen(number) => continue,
            Found::Call(..) | Found::AnyCall => {}
        }
        if cancels(code, at) {
            return Err(Refusal::Cancels);
        }
        let free_from = count.checked_sub(1).map_or(0, |last| sites[last].end());
        let site = with_room(text, &flow, jumps, free_from).ok_or(Refusal::NoRoom)?;
        if is_named(&flow, &site) {
            return Err(Refusal::IsNamed);
        }
        *sites.get_mut(count).ok_or(Refusal::TooMany)? = site;
        (count, from) = (count + 1, site.end());
    }
    Ok(count)
}

/// src/thread/x86_64/syscall_cp.s: mov [rsp + 8], r11; syscall; ret
fn cancels(code: &[u8], at: usize) -> bool {
    const BEFORE: &[u8] = &[0x4c, 0x89, 0x5c, 0x24, 0x08];
    const BEHIND: &[u8] = &[0xc3];
    code[..at].ends_with(BEFORE) && code[at + SYSCALL.len()..].starts_with(BEHIND)
}

/// Whether the address of something in it, or of what comes next, is asked for around it.
fn is_named(flow: &Flow<'_>, site: &Site) -> bool {
    let names = |from: usize, distance: i64| {
        let at = from as i64 + distance;
        at > (site.at - site.lead_bytes) as i64 && at <= site.end() as i64
    };
    let mut from = flow.start;
    while from < flow.end {
        let Some(one) = flow.code.get(from..).and_then(decode) else { break };
        if one.points.is_some_and(|distance| names(from, distance)) {
            return true;
        }
        from += one.len_bytes;
    }
    false
}

/// The fewest instructions to move, before it rather than behind it.
fn with_room(text: &Text<'_>, flow: &Flow<'_>, jumps: &[u64], free_from: usize) -> Option<Site> {
    let (mut leads, mut tails) = ([flow.at; MOST + 1], [flow.at + SYSCALL.len(); MOST + 1]);
    let lead_count = find_leads(flow, free_from, &mut leads);
    let tail_count = find_tails(flow, &mut tails);
    for moved in 1..=lead_count + tail_count {
        for behind in moved.saturating_sub(lead_count)..=moved.min(tail_count) {
            let (from, to) = (leads[moved - behind], tails[behind]);
            if to - from >= JUMP && !is_entered(text, flow, jumps, (from, to)) {
                let len_bytes = to - flow.at;
                return Some(Site { at: flow.at, lead_bytes: flow.at - from, len_bytes });
            }
        }
    }
    None
}

/// Where the instructions before it begin, the nearest first, that can move; how many.
fn find_leads(flow: &Flow<'_>, free_from: usize, leads: &mut [usize; MOST + 1]) -> usize {
    let mut count = 0;
    let mut from = flow.start;
    while from < flow.at {
        let Some(one) = flow.code.get(from..).and_then(decode) else { return 0 };
        let is_call = flow.code[from..].starts_with(&SYSCALL);
        if one.is_bound || one.ends || is_call || from < free_from {
            count = 0;
        } else {
            // leads[0] is the instruction itself.
            leads.copy_within(1..MOST, 2);
            leads[1] = from;
            count = (count + 1).min(MOST);
        }
        from += one.len_bytes;
    }
    count
}

/// Where the instructions behind it end that can move; how many.
fn find_tails(flow: &Flow<'_>, tails: &mut [usize; MOST + 1]) -> usize {
    let mut is_over = false;
    for nth in 0..MOST {
        let from = tails[nth];
        let Some(one) = flow.code.get(from..).and_then(decode) else { return nth };
        let to = from + one.len_bytes;
        let is_call = flow.code[from..].starts_with(&SYSCALL);
        let is_foreign = is_over && !is_padding(&flow.code[from..to]);
        if one.is_bound || one.is_odd || is_call || is_foreign || to > flow.end && !is_over {
            return nth;
        }
        is_over |= one.ends;
        tails[nth + 1] = to;
    }
    MOST
}

/// Whether a jump leads behind the first byte of what is overwritten.
fn is_entered(
    text: &Text<'_>,
    flow: &Flow<'_>,
    jumps: &[u64],
    (start, end): (usize, usize),
) -> bool {
    let leads_in = |target: usize| target > start && target < end;
    let mut from = flow.start;
    while from < flow.end {
        let Some(one) = flow.code.get(from..).and_then(decode) else { break };
        if flow.target(from, &one).is_some_and(leads_in) {
            return true;
        }
        from += one.len_bytes;
    }
    entries(text, flow, jumps, (start, end)).next().is_some()
}
