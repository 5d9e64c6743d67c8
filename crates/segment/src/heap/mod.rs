//! An allocator in a segment: blocks that every member may allocate, use and free.
//!
//! Size classes with bitmaps, in slabs of one or four pages, and runs of whole pages for what is
//! larger. All that the allocator knows lies apart from the blocks, so that a program that writes past
//! a block's end spoils other blocks and not the allocator. One robust mutex guards it.
//!
//! ```text
//!  ┌──────┬──────────────┬──────────────────────────┬───────────────────────────────┐
//!  │ head │ used pages   │ table: 64 bytes a page   │ pages of 4096 bytes           │
//!  │      │ (derived)    │ kind, bitmap of blocks   │                               │
//!  └──────┴──────────────┴──────────────────────────┴───────────────────────────────┘
//! ```
//!
//! **After a kill.** The truth is one word for each thing: a bit for a block of a slab, a page's
//! kind for a slab or run. Everything else (used pages, counts, lists) is derived, and built
//! again by who finds that the mutex's owner died. A record in the head says what was
//! under way: an allocation is taken back, since its caller never had the block; a free is done;
//! a reallocation is taken back, since its caller knows the old block alone. The record is cleared
//! /then/ the mutex is unlocked. So the heap is whole after a kill at any step, and what is lost
//! is at most what the program itself had not stored anywhere yet.
//!
//! **Rubbish.** Where the parts lie is private and fixed when the heap is opened. What is loaded
//! from the table and the lists is checked against that, and no step follows a list for more
//! than one neighbour: what does not fit is [`Error::Spoiled`]. Work is bounded by the number of
//! pages.

mod check;
mod class;
mod error;
mod head;
mod pages;
mod recover;
mod slab;
#[cfg(test)]
mod tests;

use std::ptr::NonNull;

use crate::sync::primitive::Ordering;
use crate::sync::{Party, Wait};
pub use check::Report;
use class::{CLASSES, Class};
pub use error::Error;
use head::{Head, Operation};
pub use pages::PAGE_BYTES;
use pages::{Kind, Page, Table};

/// A heap in mapped memory: the private view of one process.
#[derive(Clone, Copy)]
pub struct Heap<'a> {
    head: &'a Head,
    table: Table<'a>,
    data: *mut u8,
}

// SAFETY: what is shared are atomics, and `data` is only computed with.
unsafe impl Send for Heap<'_> {}
// SAFETY: as above.
unsafe impl Sync for Heap<'_> {}

/// Where the parts lie, in bytes from the start.
struct Layout {
    table_at: usize,
    data_at: usize,
    pages: usize,
}

fn layout(len_bytes: usize) -> Result<Layout, Error> {
    let head_bytes = size_of::<Head>().next_multiple_of(64);
    // A page takes its bytes, its line in the table, and a bit.
    let mut pages = len_bytes.saturating_sub(head_bytes) / (PAGE_BYTES + size_of::<Page>());
    loop {
        let table_at = head_bytes + (pages.div_ceil(64) * 8).next_multiple_of(64);
        let data_at = (table_at + pages * size_of::<Page>()).next_multiple_of(PAGE_BYTES);
        if pages == 0 || pages > pages::MAX_PAGES {
            return Err(Error::Size { len_bytes });
        }
        if data_at + pages * PAGE_BYTES <= len_bytes {
            return Ok(Layout { table_at, data_at, pages });
        }
        pages -= 1;
    }
}

impl<'a> Heap<'a> {
    /// Makes an empty heap in zeroed memory that nobody uses yet.
    ///
    /// # Safety
    /// `base` is aligned to a page and mapped for `len_bytes`, for as long as `'a`, and nothing but
    /// heaps uses it.
    pub unsafe fn create(base: *mut u8, len_bytes: usize) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let heap = unsafe { Self::view(base, len_bytes) }?;
        heap.head.set_pages(heap.table.count());
        Ok(heap)
    }

    /// Opens a heap that somebody made in the same `len_bytes`.
    ///
    /// # Safety
    /// As [`Heap::create`].
    pub unsafe fn open(base: *mut u8, len_bytes: usize) -> Result<Self, Error> {
        // SAFETY: the caller's promise.
        let heap = unsafe { Self::view(base, len_bytes) }?;
        heap.head.check_pages(heap.table.count())?;
        Ok(heap)
    }

    unsafe fn view(base: *mut u8, len_bytes: usize) -> Result<Self, Error> {
        if base.is_null() || !base.addr().is_multiple_of(PAGE_BYTES) {
            return Err(Error::Misaligned { at: base.addr() });
        }
        let Layout { table_at, data_at, pages } = layout(len_bytes)?;
        let bits_at = size_of::<Head>().next_multiple_of(64);
        // SAFETY: `layout` keeps all three and the pages within `len_bytes`; they are atomics.
        unsafe {
            let head = &*base.cast::<Head>();
            let words = pages.div_ceil(64);
            let bits = std::slice::from_raw_parts(base.add(bits_at).cast(), words);
            let lines = std::slice::from_raw_parts(base.add(table_at).cast(), pages);
            Ok(Self { head, table: Table::new(lines, bits), data: base.add(data_at) })
        }
    }

    /// A block of `len_bytes`, aligned to `align_bytes` (a power of two). Its bytes are whatever
    /// was there. Length 0 has a block of its own, too.
    ///
    /// Errors: NoMemory, Alignment, Spoiled, and those of the lock.
    pub fn alloc(
        &self,
        by: &Party<'_>,
        len_bytes: usize,
        align_bytes: usize,
    ) -> Result<NonNull<u8>, Error> {
        self.session(by, || self.take(len_bytes, align_bytes, None)).map(|at| self.pointer(at))
    }

    /// Gives a block back. Errors: NotABlock (freed already, or none of this heap's), Spoiled, and
    /// those of the lock.
    pub fn free(&self, by: &Party<'_>, block: NonNull<u8>) -> Result<(), Error> {
        let at = self.offset(block)?;
        self.session(by, || {
            self.block_at(at)?;
            self.head.begin(Operation::Free, at, 0, 0);
            self.give(at, true)
        })
    }

    /// A block of `len_bytes` with the content of `block`, which is freed if it is another one.
    /// After an error, or the death of the caller, `block` is as it was.
    pub fn realloc(
        &self,
        by: &Party<'_>,
        block: NonNull<u8>,
        len_bytes: usize,
        align_bytes: usize,
    ) -> Result<NonNull<u8>, Error> {
        let at = self.offset(block)?;
        self.session(by, || {
            let had_bytes = self.block_at(at)?;
            let is_aligned = block.addr().get().is_multiple_of(align_bytes.max(1));
            if is_aligned && self.resize(at, had_bytes, len_bytes)? {
                return Ok(at);
            }
            let new = self.take(len_bytes, align_bytes, Some((at, had_bytes)))?;
            // SAFETY: both are blocks of this heap, in use, of so many bytes, and not the same.
            unsafe {
                let (from, to) = (self.data.add(at), self.data.add(new));
                std::ptr::copy_nonoverlapping(from, to, had_bytes.min(len_bytes));
            }
            self.give(at, false)?;
            Ok(new)
        })
        .map(|at| self.pointer(at))
    }

    /// How many bytes a block has, which may be more than were asked for.
    pub fn len_bytes(&self, by: &Party<'_>, block: NonNull<u8>) -> Result<usize, Error> {
        let at = self.offset(block)?;
        self.session(by, || self.block_at(at))
    }

    /// Looks at everything. Errors: Spoiled, with what does not fit.
    pub fn check(&self, by: &Party<'_>) -> Result<Report, Error> {
        self.session(by, || self.report())
    }

    fn pointer(&self, at: usize) -> NonNull<u8> {
        // SAFETY: `at` is within the pages.
        unsafe { NonNull::new_unchecked(self.data.add(at)) }
    }

    fn offset(&self, block: NonNull<u8>) -> Result<usize, Error> {
        let address = block.addr().get();
        let at = address.wrapping_sub(self.data.addr());
        if at < self.table.count() * PAGE_BYTES {
            Ok(at)
        } else {
            Err(Error::NotABlock { address })
        }
    }

    /// Runs `act` under the lock, on a heap that is whole.
    fn session<T>(
        &self,
        by: &Party<'_>,
        act: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let lock = &self.head.mutex;
        if lock.lock(by, Wait::Forever)?.owner_died {
            if let Err(error) = self.recover() {
                // Without consistent: it is lost for all.
                lock.unlock(by)?;
                return Err(error);
            }
            lock.consistent(by)?;
        }
        let result = act();
        self.head.end();
        lock.unlock(by)?;
        result
    }

    /// Allocates; with `old`, as the second half of a reallocation.
    fn take(
        &self,
        len_bytes: usize,
        align_bytes: usize,
        old: Option<(usize, usize)>,
    ) -> Result<usize, Error> {
        if !align_bytes.is_power_of_two() {
            return Err(Error::Alignment { align_bytes });
        }
        let begin = |new| match old {
            None => self.head.begin(Operation::Alloc, new, 0, 0),
            Some((old, had_bytes)) => self.head.begin(Operation::Realloc, new, old, had_bytes),
        };
        if let Some(class) = Class::of(len_bytes, align_bytes) {
            let (page, index) = self.find_block(class)?;
            let at = page * PAGE_BYTES + index * class.block_bytes();
            begin(at);
            self.take_block(page, index, class)?;
            return Ok(at);
        }
        let pages = len_bytes.div_ceil(PAGE_BYTES).max(1);
        let align = align_bytes.div_ceil(PAGE_BYTES).max(1);
        let first = self.find_pages(pages, align)?.ok_or(Error::NoMemory { len_bytes })?;
        begin(first * PAGE_BYTES);
        self.table.line(first)?.set_kind(Kind::Run { pages });
        self.table.set_used(first, pages, true);
        Ok(first * PAGE_BYTES)
    }

    /// Frees the block at `at`; `release`: with a slab that is empty then.
    fn give(&self, at: usize, release: bool) -> Result<(), Error> {
        let page = at / PAGE_BYTES;
        if let Kind::Run { pages } = self.table.line(page)?.kind()? {
            self.table.line(page)?.set_kind(Kind::Free);
            self.table.set_used(page, pages, false);
            return Ok(());
        }
        let (head, class) = self.slab_of(page)?;
        self.give_block(head, (at - head * PAGE_BYTES) / class.block_bytes(), class, release)
    }

    /// The size of the block that begins at `at` and is in use.
    fn block_at(&self, at: usize) -> Result<usize, Error> {
        let none = Error::NotABlock { address: self.data.addr() + at };
        let page = at / PAGE_BYTES;
        match self.table.line(page)?.kind()? {
            Kind::Free => Err(none),
            Kind::Run { pages } => {
                self.table.check_span(page, pages)?;
                if at.is_multiple_of(PAGE_BYTES) && self.table.is_used(page) {
                    Ok(pages * PAGE_BYTES)
                } else {
                    Err(none)
                }
            }
            Kind::Slab { .. } | Kind::Body { .. } => {
                let (head, class) = self.slab_of(page)?;
                let within = at - head * PAGE_BYTES;
                let index = within / class.block_bytes();
                let is_start = within.is_multiple_of(class.block_bytes());
                if is_start && index < class.blocks() && self.table.line(head)?.has(index) {
                    Ok(class.block_bytes())
                } else {
                    Err(none)
                }
            }
        }
    }

    /// Whether the block could be made fit where it is.
    fn resize(&self, at: usize, had_bytes: usize, len_bytes: usize) -> Result<bool, Error> {
        let page = at / PAGE_BYTES;
        let Kind::Run { pages } = self.table.line(page)?.kind()? else {
            return Ok(len_bytes <= had_bytes && len_bytes > had_bytes / 2);
        };
        if Class::of(len_bytes, 1).is_some() {
            return Ok(false);
        }
        let wanted = len_bytes.div_ceil(PAGE_BYTES);
        if wanted > pages && !self.table.are_free(page + pages, wanted - pages) {
            return Ok(false);
        }
        self.head.begin(Operation::Realloc, at, at, had_bytes);
        self.table.line(page)?.set_kind(Kind::Run { pages: wanted });
        if wanted > pages {
            self.table.set_used(page + pages, wanted - pages, true);
        } else {
            self.table.set_used(page + wanted, pages - wanted, false);
        }
        Ok(true)
    }
}
