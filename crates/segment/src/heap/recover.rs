//! After an owner's death: what was under way is taken back or done, and what is derived is
//! built again. Whoever dies here leaves it to the next one, who begins anew.

use super::head::{Operation, Record};
use super::pages::{Kind, PAGE_BYTES};
use super::{Error, Heap, Ordering};

impl Heap<'_> {
    pub(super) fn recover(&self) -> Result<(), Error> {
        if let Some(Record { operation, new, old, old_bytes }) = self.head.record()? {
            match operation {
                Operation::Alloc | Operation::Free => self.erase(new)?,
                Operation::Realloc => {
                    if new != old {
                        self.erase(new)?;
                    }
                    self.restore(old, old_bytes)?;
                }
            }
        }
        self.rebuild()?;
        self.head.end();
        Ok(())
    }

    /// The block at `at` is free, if it was not already.
    fn erase(&self, at: usize) -> Result<(), Error> {
        let page = at / PAGE_BYTES;
        match self.table.line(page)?.kind()? {
            Kind::Free => {}
            Kind::Run { .. } => self.table.line(page)?.set_kind(Kind::Free),
            Kind::Slab { .. } | Kind::Body { .. } => {
                // A body whose slab has been given up says nothing.
                if let Ok((head, class)) = self.slab_of(page) {
                    let index = (at - head * PAGE_BYTES) / class.block_bytes();
                    if index < class.blocks() {
                        self.table.line(head)?.set(index, false);
                    }
                }
            }
        }
        Ok(())
    }

    /// The block at `at` is in use, with so many bytes.
    fn restore(&self, at: usize, had_bytes: usize) -> Result<(), Error> {
        let page = at / PAGE_BYTES;
        let line = self.table.line(page)?;
        if let Kind::Slab { .. } | Kind::Body { .. } = line.kind()? {
            let (head, class) = self.slab_of(page)?;
            let index = (at - head * PAGE_BYTES) / class.block_bytes();
            if index >= class.blocks() {
                return Err(Error::Spoiled { what: "the heap's record", value: at as u64 });
            }
            self.table.line(head)?.set(index, true);
            return Ok(());
        }
        let pages = had_bytes / PAGE_BYTES;
        self.table.check_span(page, pages)?;
        if pages == 0 {
            return Err(Error::Spoiled { what: "the heap's record", value: had_bytes as u64 });
        }
        line.set_kind(Kind::Run { pages });
        Ok(())
    }

    /// Used pages, counts and lists from the table; empty slabs are given up.
    fn rebuild(&self) -> Result<(), Error> {
        self.table.clear_used();
        for list in &self.head.lists {
            list.store(0, Ordering::Relaxed);
        }
        let mut page = 0;
        while page < self.table.count() {
            let line = self.table.line(page)?;
            let Some(pages) = self.span_at(page)? else {
                // A body without its slab.
                line.set_kind(Kind::Free);
                page += 1;
                continue;
            };
            let mut is_used = true;
            if let Kind::Slab { class } = line.kind()? {
                let used = line.count();
                if used > class.blocks() {
                    return Err(Error::Spoiled { what: "a slab's bitmap", value: used as u64 });
                }
                line.used.store(used as u64, Ordering::Relaxed);
                line.next.store(0, Ordering::Relaxed);
                line.previous.store(0, Ordering::Relaxed);
                if used == 0 {
                    line.set_kind(Kind::Free);
                    is_used = false;
                } else if used < class.blocks() {
                    self.link(page, line, class)?;
                }
            }
            self.table.set_used(page, pages, is_used);
            page += pages;
        }
        Ok(())
    }
}
