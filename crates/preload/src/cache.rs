//! Where an object's instructions are that need detours, kept for the next time: to find them takes
//! milliseconds, as all of its text is gone through.
//!
//! - `~/.cache/yasmin/sites-HEX`, by the XDG Base Directory Specification. Without `~/.cache` nothing is kept.
//! - A file is for one program or library, as its file was then (`Stamp`): another one's is not used. So many files there are at
//!   most as two digits name.
//! - Used is what this user alone may have written. Whoever calls still looks whether each place can have a detour.
//! - Written in one piece, with a sum over all: of two writers the reader gets one, or nothing.
//!
//! | words, little-endian | |
//! |---|---|
//! | 0 | `FORMAT` |
//! | 1 to 7 | the stamp |
//! | 8 | how many sites; `NO_DETOURS`: it can have none; `NOT_KNOWN`: whoever looked for them did not end |
//! | one for each site | where it begins, in bytes, times 65536; its lead, times 256; its length |
//! | the last | the sum |
//!
//! Storey 1: system.

use core::ffi::{CStr, c_char, c_int};

use yasmin_text::is_seen;
use yasmin_text::sites::Site;

use crate::environment::{self, Strings};
use crate::process;
use crate::sys::{self, call};

/// An object with more has no detours.
pub const SITES: usize = 1024;

const PATH_BYTES: usize = 1024;
const WORDS: usize = 2 + STAMP + SITES + 1;
const BYTES: usize = WORDS * size_of::<u64>();
const STAMP: usize = 7;
const COUNT_AT: usize = 1 + STAMP;
const NO_DETOURS: u64 = u64::MAX;
const NOT_KNOWN: u64 = u64::MAX - 1;

/// Of the rules by which sites are found, too: their number, and the calls that are seen.
const FORMAT: u64 = {
    const RULES: u64 = 2;
    let (mut sum, mut number) = (sum_with(SUM, RULES), 0);
    while number < 512 {
        sum = sum_with(sum, is_seen(number) as u64);
        number += 1;
    }
    sum
};

/// FNV-1a, a word at once.
const SUM: u64 = 0xcbf2_9ce4_8422_2325;

const fn sum_with(sum: u64, word: u64) -> u64 {
    (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29)
}

fn sum_of(words: &[u64]) -> u64 {
    words.iter().fold(SUM, |sum, word| sum_with(sum, *word))
}

/// stat(2), as words.
struct Status([u64; 18]);

impl Status {
    const EMPTY_PATH: c_int = 0x1000;

    fn of(folder: c_int, path: *const c_char, flags: c_int) -> Option<Self> {
        let mut words = [0; 18];
        // SAFETY: a C string, and 144 bytes of ours.
        let ret = unsafe { call!(newfstatat, folder, path, words.as_mut_ptr(), flags) };
        (ret == 0).then_some(Self(words))
    }

    fn of_open(fd: c_int) -> Option<Self> {
        Self::of(fd, c"".as_ptr(), Self::EMPTY_PATH)
    }

    /// Whether it is of this type, and nobody but this user may write there.
    fn is_ours(&self, of_type: u32) -> bool {
        const TYPE: u32 = 0o170_000;
        const OTHERS_WRITE: u32 = 0o022;
        let (mode, owner) = (self.0[3] as u32, (self.0[3] >> 32) as u32);
        mode & (TYPE | OTHERS_WRITE) == of_type && owner == process::effective_ids().0
    }
}

/// Which file it was, when, and what its text is: device, inode, size, the seconds of its last changes
/// (contents, inode), the nanoseconds of both, and a sum over samples of the text: the file may be another one by now.
#[derive(Clone, Copy, PartialEq)]
struct Stamp([u64; STAMP]);

impl Stamp {
    fn new(path: &CStr, text: &[u8]) -> Option<Self> {
        const SAMPLES: usize = 32;
        let Status(it) = Status::of(sys::AT_FDCWD, path.as_ptr(), 0)?;
        let nanoseconds = it[12] << 32 | it[14];
        let (words, _) = text.as_chunks();
        let samples = words.iter().step_by(words.len() / SAMPLES + 1);
        let sum =
            samples.fold(text.len() as u64, |sum, word| sum_with(sum, u64::from_le_bytes(*word)));
        Some(Self([it[0], it[1], it[6], it[11], it[13], nanoseconds, sum]))
    }
}

/// The place for one object.
pub struct Cache {
    /// The folder in which `yasmin` is, as a C string.
    folder: [u8; PATH_BYTES],
    stamp: Stamp,
}

/// A descriptor that is closed in the end.
struct Fd(c_int);

impl Fd {
    fn open(folder: c_int, path: *const c_char, flags: c_int) -> Option<Self> {
        const MODE: c_int = 0o600;
        let flags = flags | sys::O_CLOEXEC | sys::O_NONBLOCK;
        // SAFETY: a C string.
        let fd = unsafe { call!(openat, folder, path, flags, MODE) } as c_int;
        (fd >= 0).then_some(Self(fd))
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        sys::close(self.0);
    }
}

const FOLDER: &CStr = c"yasmin";
const O_NOFOLLOW: c_int = 0o400_000;

impl Cache {
    /// For the object of this file, which has this text. Without such a file nothing is kept.
    ///
    /// # Safety
    /// The program's environment.
    pub unsafe fn new(environment: Strings, file: &CStr, text: &[u8]) -> Option<Self> {
        // SAFETY: the caller's.
        let value = |name| unsafe { environment::variable(environment, name) };
        let absolute = |path: &&[u8]| path.starts_with(b"/");
        let named = value(b"XDG_CACHE_HOME=").filter(absolute).map(|path| (path, &b""[..]));
        let at_home = || value(b"HOME=").filter(absolute).map(|path| (path, &b"/.cache"[..]));
        let (path, rest) = named.or_else(at_home)?;
        let mut folder = [0; PATH_BYTES];
        let len = path.len() + rest.len();
        if len >= PATH_BYTES {
            return None;
        }
        folder[..path.len()].copy_from_slice(path);
        folder[path.len()..len].copy_from_slice(rest);
        Some(Self { folder, stamp: Stamp::new(file, text)? })
    }

    fn open_folder(&self, makes: bool) -> Option<Fd> {
        const O_PATH_DIRECTORY: c_int = 0o10_000_000 | 0o200_000;
        const IS_FOLDER: u32 = 0o040_000;
        const MODE: c_int = 0o700;
        let around = Fd::open(sys::AT_FDCWD, self.folder.as_ptr().cast(), O_PATH_DIRECTORY)?;
        let open = || Fd::open(around.0, FOLDER.as_ptr(), O_PATH_DIRECTORY | O_NOFOLLOW);
        let folder = open().or_else(|| {
            // SAFETY: a C string.
            let is_made = || unsafe { call!(mkdirat, around.0, FOLDER.as_ptr(), MODE) == 0 };
            (makes && is_made()).then(open)?
        })?;
        Status::of_open(folder.0)?.is_ours(IS_FOLDER).then_some(folder)
    }

    fn open_file(&self, flags: c_int, makes: bool) -> Option<Fd> {
        const IS_FILE: u32 = 0o100_000;
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // Fibonacci hashing: all bits have a say in the highest ones.
        let which = sum_of(&self.stamp.0[..2]).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        let mut path = *b"sites-00\0";
        path[6] = DIGITS[which as usize / DIGITS.len()];
        path[7] = DIGITS[which as usize % DIGITS.len()];
        let folder = self.open_folder(makes)?;
        let file = Fd::open(folder.0, path.as_ptr().cast(), flags | O_NOFOLLOW)?;
        Status::of_open(file.0)?.is_ours(IS_FILE).then_some(file)
    }

    /// How many sites were put into `sites`; `None` in it: it can have no detours.
    pub fn read(&self, sites: &mut [Site; SITES]) -> Option<Option<usize>> {
        let file = self.open_file(0, false)?;
        let mut words = [0u64; WORDS];
        // SAFETY: BYTES bytes of ours.
        let got = unsafe { call!(read, file.0, words.as_mut_ptr(), BYTES) };
        let words = words.get(..usize::try_from(got).ok()? / size_of::<u64>())?;
        let (&sum, words) = words.split_last()?;
        let (head, rest) = words.split_at_checked(COUNT_AT + 1)?;
        if head[0] != FORMAT || head[1..COUNT_AT] != self.stamp.0 || sum != sum_of(words) {
            return None;
        }
        if head[COUNT_AT] == NO_DETOURS {
            return Some(None);
        }
        let count = usize::try_from(head[COUNT_AT]).ok().filter(|count| *count == rest.len())?;
        let sites = sites.get_mut(..count)?;
        for (site, word) in sites.iter_mut().zip(rest) {
            let at = (word >> 16) as usize;
            let (lead_bytes, len_bytes) = ((word >> 8) as u8 as usize, *word as u8 as usize);
            *site = Site { at, lead_bytes, len_bytes };
        }
        Some(Some(count))
    }

    /// Whether anything can be kept.
    pub fn keeps(&self) -> bool {
        self.write_count(NOT_KNOWN, &[])
    }

    /// Keeps these, or that there can be none.
    pub fn write(&self, sites: Option<&[Site]>) {
        let count = sites.map_or(NO_DETOURS, |sites| sites.len() as u64);
        self.write_count(count, sites.unwrap_or_default());
    }

    fn write_count(&self, count: u64, places: &[Site]) -> bool {
        const O_CREAT_WRONLY: c_int = 0o100 | 1;
        let end = COUNT_AT + 1 + places.len();
        let mut words = [0u64; WORDS];
        words[0] = FORMAT;
        words[1..COUNT_AT].copy_from_slice(&self.stamp.0);
        words[COUNT_AT] = count;
        for (word, site) in words[COUNT_AT + 1..].iter_mut().zip(places) {
            *word = (site.at as u64) << 16 | (site.lead_bytes as u64) << 8 | site.len_bytes as u64;
        }
        words[end] = sum_of(&words[..end]);
        let len_bytes = (end + 1) * size_of::<u64>();
        if !sys::allows_file_of(BYTES) {
            return false;
        }
        let Some(file) = self.open_file(O_CREAT_WRONLY, true) else { return false };
        // What an earlier one left behind the end would spoil the sum.
        // SAFETY: bytes of ours.
        unsafe {
            call!(write, file.0, words.as_ptr(), len_bytes) == len_bytes as isize
                && call!(ftruncate, file.0, len_bytes) == 0
        }
    }
}
