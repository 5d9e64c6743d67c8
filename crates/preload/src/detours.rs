//! Detours: a jump in place of an instruction of the program's that enters the kernel (`yasmin_text::sites`). It
//! leads to text of ours that does what had to move, and goes by one of this library's functions.
//!
//! Only while one thread is there, before the program's first instruction: nobody is inside what is changed.
//! Text is never writable: its pages are copied, and the changed copies take their place.
//!
//! Storey 1: system.

use core::ffi::c_int;

use yasmin_text::sites::{JUMP, Site};

use crate::sys::{self, call};

const PAGE: usize = 4096;
/// One detour, in bytes: what had to move (at most four instructions before and as many behind, of which all
/// but one are shorter than a jump), 20 bytes of its own, and room. The first one's place has HEADS.
const DETOUR: usize = 128;
const SYSCALL_BYTES: usize = 2;
const NOP: u8 = 0x90;

/// What a detour leads to: with the address to go on at in a register that `lea` fills.
#[derive(Clone, Copy)]
pub struct Heads {
    pub calls: unsafe extern "C" fn(),
    pub threads: unsafe extern "C" fn(),
    pub back: Back,
}

/// Where a call goes on.
#[derive(Clone, Copy, PartialEq)]
pub enum Back {
    /// rbx says so.
    Rbx,
    /// rcx says so. Right before it stands a `syscall`, for who would leave the call to the program.
    Rcx,
}

/// One detour of a text.
#[derive(Clone, Copy)]
pub struct Detour {
    pub site: Site,
    pub is_thread: bool,
}

impl Detour {
    pub const NONE: Self = Self { site: Site::NONE, is_thread: false };

    /// What is overwritten, in memory: from and to.
    fn range(&self, code: &[u8]) -> (usize, usize) {
        let at = code.as_ptr() as usize + self.site.at;
        (at - self.site.lead_bytes, at + self.site.len_bytes)
    }
}

const PROT_READ: c_int = 1;
const PROT_WRITE: c_int = 2;
const PROT_EXEC: c_int = 4;

/// So many bytes of ours that jumps reach from all of the text. Below it: the heap grows above.
fn map_before(text: &[u8], wanted_bytes: usize) -> Option<usize> {
    const PRIVATE_ANONYMOUS_NOREPLACE: c_int = 0x02 | 0x20 | 0x10_0000;
    const FAR: usize = 1 << 30;
    const STEP: usize = 1 << 16;
    if text.len() > FAR {
        return None;
    }
    let top = (text.as_ptr() as usize - wanted_bytes) & !(STEP - 1);
    (0..FAR / STEP).map_while(|i| top.checked_sub(i * STEP)).find(|&at| {
        // SAFETY: at an address where nothing is; an older kernel takes it for a hint.
        let got = unsafe {
            call!(
                mmap,
                at,
                wanted_bytes,
                PROT_READ | PROT_WRITE,
                PRIVATE_ANONYMOUS_NOREPLACE,
                -1_isize,
                0
            )
        };
        if got > 0 && got as usize != at {
            // SAFETY: just mapped.
            unsafe { sys::unmap(got as *mut u8, wanted_bytes) };
        }
        got as usize == at
    })
}

/// Gives this text these detours, which are in order. Nothing changes where the system refuses pages that were
/// written and may then be run (MemoryDenyWriteExecute, SELinux's execmem). Whether it has them.
pub fn divert(code: &'static [u8], detours: &[Detour], heads: &Heads) -> bool {
    let len_bytes = ((detours.len() + 1) * DETOUR).next_multiple_of(PAGE);
    let Some(first) = map_before(code, len_bytes) else { return false };
    let placed = || detours.iter().zip((1..).map(|nth| first + nth * DETOUR));
    // SAFETY: fresh memory of ours.
    unsafe {
        let words = first as *mut usize;
        words.write(heads.calls as usize);
        words.add(1).write(heads.threads as usize);
    }
    for (detour, place) in placed() {
        let head = first + size_of::<usize>() * usize::from(detour.is_thread);
        write(code, detour, place, head, heads.back);
    }
    // SAFETY: our memory, and instructions of the program's, which nobody runs yet.
    unsafe {
        if call!(mprotect, first, len_bytes, PROT_READ | PROT_EXEC) != 0 {
            sys::unmap(first as *mut u8, len_bytes);
            return false;
        }
        replace(code, detours, first + DETOUR)
    }
}

/// Puts a jump to `to` at `at`, where `room_bytes` may be overwritten. While threads run: none is behind its first byte.
pub fn lead(code: &'static [u8], at: usize, room_bytes: usize, to: extern "C" fn()) -> bool {
    if room_bytes < JUMP {
        return false;
    }
    let Some(first) = map_before(code, PAGE) else { return false };
    let detour =
        Detour { site: Site { at, lead_bytes: 0, len_bytes: room_bytes }, is_thread: false };
    let place = first + size_of::<usize>();
    // SAFETY: fresh memory of ours, and instructions that the caller vouches for.
    unsafe {
        (first as *mut usize).write(to as usize);
        let mut writer = Writer(place as *mut u8);
        // jmp [first]
        writer.bytes(&[0xff, 0x25]);
        writer.distance(first);
        call!(mprotect, first, PAGE, PROT_READ | PROT_EXEC) == 0 && replace(code, &[detour], place)
    }
}

/// The detour at `place`, in memory that is writable, by way of the function whose address the word at `head` is.
fn write(code: &[u8], detour: &Detour, place: usize, head: usize, back: Back) {
    let Site { at, lead_bytes, len_bytes } = detour.site;
    let mut to = Writer(place as *mut u8);
    to.bytes(&code[at - lead_bytes..at]);
    // lea rbx or rcx, [rip + what comes before it]; jmp [head]
    match back {
        Back::Rbx => {
            to.bytes(&[0x48, 0x8d, 0x1d, 6, 0, 0, 0, 0xff, 0x25]);
            to.distance(head);
        }
        Back::Rcx => {
            to.bytes(&[0x48, 0x8d, 0x0d, 8, 0, 0, 0, 0xff, 0x25]);
            to.distance(head);
            to.bytes(&code[at..at + SYSCALL_BYTES]);
        }
    }
    to.bytes(&code[at + SYSCALL_BYTES..at + len_bytes]);
    to.bytes(&[0xe9]);
    to.distance(detour.range(code).1);
}

/// Whole pages that change, from one address to another, and how many detours they have.
struct Pages {
    begin: usize,
    end: usize,
    count: usize,
}

/// The first pages that change.
fn first_pages(code: &[u8], detours: &[Detour]) -> Option<Pages> {
    let whole = |detour: &Detour| {
        let (from, to) = detour.range(code);
        (from & !(PAGE - 1), to.next_multiple_of(PAGE))
    };
    let (begin, mut end) = whole(detours.first()?);
    let mut count = 1;
    // One that stands across the end takes the next page along.
    while let Some((from, to)) = detours.get(count).map(whole)
        && from < end
    {
        end = end.max(to);
        count += 1;
    }
    Some(Pages { begin, end, count })
}

fn all_pages<'a>(
    code: &'a [u8],
    mut detours: &'a [Detour],
) -> impl Iterator<Item = (Pages, &'a [Detour])> {
    core::iter::from_fn(move || {
        let pages = first_pages(code, detours)?;
        let (these, rest) = detours.split_at(pages.count);
        detours = rest;
        Some((pages, these))
    })
}

/// Puts jumps to detours, the first of which is at `place`, into the text.
///
/// # Safety
/// Text of the program's, of which no thread is inside the bytes that change.
unsafe fn replace(code: &[u8], detours: &[Detour], place: usize) -> bool {
    const MREMAP_MAYMOVE_FIXED: c_int = 1 | 2;
    let len_bytes = all_pages(code, detours).map(|(pages, _)| pages.end - pages.begin).sum();
    let Some(copies) = sys::map_private(len_bytes) else { return false };
    let (mut copy, mut place) = (copies, place);
    // SAFETY: the segment's pages, whole as they are mapped, and copies of them.
    unsafe {
        for (pages, detours) in all_pages(code, detours) {
            let len_bytes = pages.end - pages.begin;
            core::ptr::copy_nonoverlapping(pages.begin as *const u8, copy, len_bytes);
            for detour in detours {
                let (from, to) = detour.range(code);
                let mut writer = Writer(copy.add(from - pages.begin));
                writer.bytes(&[0xe9]);
                writer.word(place.wrapping_sub(from + JUMP) as i32);
                for _ in from + JUMP..to {
                    writer.bytes(&[NOP]);
                }
                place += DETOUR;
            }
            copy = copy.add(len_bytes);
        }
        let end = copy;
        copy = copies;
        let may_run = call!(mprotect, copies, len_bytes, PROT_READ | PROT_EXEC) == 0;
        let is_put = may_run
            && all_pages(code, detours).all(|(pages, _)| {
                let len = pages.end - pages.begin;
                let is_put = call!(mremap, copy, len, len, MREMAP_MAYMOVE_FIXED, pages.begin) > 0;
                if is_put {
                    copy = copy.add(len);
                }
                is_put
            });
        if !is_put {
            sys::unmap(copy, end.offset_from_unsigned(copy));
        }
        is_put
    }
}

struct Writer(*mut u8);

impl Writer {
    /// How far it is from behind these four bytes to `target`.
    fn distance(&mut self, target: usize) {
        self.word((target as isize - (self.0 as usize + 4) as isize) as i32);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        // SAFETY: `write` writes less than DETOUR into a detour, `replace` a site's own bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.0, bytes.len());
            self.0 = self.0.add(bytes.len());
        }
    }

    fn word(&mut self, word: i32) {
        self.bytes(&word.to_le_bytes());
    }
}
