//! Pages: what each is, and which are in use.

use super::class::{Class, MAX_SLAB_PAGES};
use super::{Error, Ordering};
use crate::sync::primitive::AtomicU64;

pub const PAGE_BYTES: usize = 4096;
/// 16 TiB.
pub(super) const MAX_PAGES: usize = u32::MAX as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Free,
    /// The first page of a slab.
    Slab {
        class: Class,
    },
    /// The first page of a block of whole pages. The others' kind says nothing.
    Run {
        pages: usize,
    },
    /// So many pages behind the first one of a slab.
    Body {
        behind: usize,
    },
}

/// A page's line in the table: 64 bytes.
#[repr(C)]
pub(super) struct Page {
    /// The kind in the lowest 8 bits; above them what it says.
    kind: AtomicU64,
    /// A slab's blocks in use.
    bits: [AtomicU64; 4],
    /// Derived: how many they are, and the neighbours in the class's list, as page + 1.
    pub used: AtomicU64,
    pub next: AtomicU64,
    pub previous: AtomicU64,
}

const _: () = assert!(size_of::<Page>() == 64);

impl Page {
    pub fn kind(&self) -> Result<Kind, Error> {
        let word = self.kind.load(Ordering::Relaxed);
        let value = (word >> 8) as usize;
        let kind = match word & 0xff {
            0 if value == 0 => Some(Kind::Free),
            1 => Class::from_index(value).map(|class| Kind::Slab { class }),
            2 if value > 0 => Some(Kind::Run { pages: value }),
            3 if (1..MAX_SLAB_PAGES).contains(&value) => Some(Kind::Body { behind: value }),
            _ => None,
        };
        kind.ok_or(Error::Spoiled { what: "a page's kind", value: word })
    }

    pub fn set_kind(&self, kind: Kind) {
        let (kind, value) = match kind {
            Kind::Free => (0, 0),
            Kind::Slab { class } => (1, class.index()),
            Kind::Run { pages } => (2, pages),
            Kind::Body { behind } => (3, behind),
        };
        self.kind.store((value as u64) << 8 | kind, Ordering::Release);
    }

    pub fn has(&self, index: usize) -> bool {
        self.bits[index / 64].load(Ordering::Relaxed) & (1 << (index % 64)) != 0
    }

    pub fn set(&self, index: usize, is_used: bool) {
        let word = &self.bits[index / 64];
        let bit = 1 << (index % 64);
        let bits = word.load(Ordering::Relaxed);
        word.store(if is_used { bits | bit } else { bits & !bit }, Ordering::Release);
    }

    pub fn clear(&self) {
        for word in &self.bits {
            word.store(0, Ordering::Relaxed);
        }
    }

    pub fn first_free(&self, blocks: usize) -> Option<usize> {
        let words = self.bits.iter().enumerate();
        let mut free = words.map(|(index, word)| {
            index * 64 + (!word.load(Ordering::Relaxed)).trailing_zeros() as usize
        });
        // A full word gives the next one's first index, which is then that one's own matter.
        let mut word = 0;
        free.find(|index| {
            word += 64;
            *index < word && *index < blocks
        })
    }

    pub fn count(&self) -> usize {
        self.bits.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
    }
}

#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    lines: &'a [Page],
    /// Derived: a bit for each page in use.
    used: &'a [AtomicU64],
}

impl<'a> Table<'a> {
    pub fn new(lines: &'a [Page], used: &'a [AtomicU64]) -> Self {
        Self { lines, used }
    }

    pub fn count(&self) -> usize {
        self.lines.len()
    }

    pub fn line(&self, page: usize) -> Result<&'a Page, Error> {
        let spoiled = Error::Spoiled { what: "a page's number", value: page as u64 };
        self.lines.get(page).ok_or(spoiled)
    }

    pub fn check_span(&self, first: usize, pages: usize) -> Result<(), Error> {
        match first.checked_add(pages) {
            Some(end) if end <= self.count() => Ok(()),
            _ => Err(Error::Spoiled { what: "the length of a run", value: pages as u64 }),
        }
    }

    pub fn is_used(&self, page: usize) -> bool {
        self.used[page / 64].load(Ordering::Relaxed) & (1 << (page % 64)) != 0
    }

    pub fn are_free(&self, first: usize, pages: usize) -> bool {
        self.check_span(first, pages).is_ok() && (first..first + pages).all(|p| !self.is_used(p))
    }

    /// Ignores what is beyond the end: the length of a run is a peer's.
    pub fn set_used(&self, first: usize, pages: usize, is_used: bool) {
        let end = first.saturating_add(pages).min(self.count());
        let mut page = first;
        while page < end {
            let word = &self.used[page / 64];
            let upto = (page / 64 * 64 + 64).min(end);
            let bits = (u64::MAX >> (64 - (upto - page))) << (page % 64);
            let seen = word.load(Ordering::Relaxed);
            let now = if is_used { seen | bits } else { seen & !bits };
            word.store(now, Ordering::Relaxed);
            page = upto;
        }
    }

    pub fn clear_used(&self) {
        for word in self.used {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The first of `pages` free ones; its address, which is `skew` pages more, a multiple of
    /// `align` pages.
    pub fn find(&self, pages: usize, align: usize, skew: usize) -> Option<usize> {
        let aligned = |page: usize| (page + skew).next_multiple_of(align) - skew;
        let mut first = aligned(0);
        let mut at = first;
        while first.checked_add(pages)? <= self.count() {
            if at == first + pages {
                return Some(first);
            }
            if at % 64 == 0 && self.used[at / 64].load(Ordering::Relaxed) == u64::MAX {
                first = aligned(at + 64);
                at = first;
            } else if self.is_used(at) {
                first = aligned(at + 1);
                at = first;
            } else {
                at += 1;
            }
        }
        None
    }
}
