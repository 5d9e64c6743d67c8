//! Slabs: pages of blocks of one class, and the lists of those that have free ones.

use super::class::Class;
use super::pages::{Kind, PAGE_BYTES, Page};
use super::{Error, Heap, Ordering};

fn spoiled(what: &'static str, value: u64) -> Error {
    Error::Spoiled { what, value }
}

impl Heap<'_> {
    /// The first page and the class of the slab that has `page`.
    pub(super) fn slab_of(&self, page: usize) -> Result<(usize, Class), Error> {
        let head = match self.table.line(page)?.kind()? {
            Kind::Slab { .. } => page,
            Kind::Body { behind } if behind <= page => page - behind,
            _ => return Err(spoiled("a page that is no slab's", page as u64)),
        };
        match self.table.line(head)?.kind()? {
            Kind::Slab { class } if page - head < class.pages() => {
                self.table.check_span(head, class.pages())?;
                Ok((head, class))
            }
            _ => Err(spoiled("the page behind a slab", page as u64)),
        }
    }

    /// A free block, not taken yet: its slab and index. Makes a slab where there is none.
    pub(super) fn find_block(&self, class: Class) -> Result<(usize, usize), Error> {
        let list = self.head.lists[class.index()].load(Ordering::Relaxed);
        if list == 0 {
            return Ok((self.new_slab(class)?, 0));
        }
        let page = list as usize - 1;
        let line = self.table.line(page)?;
        if line.kind()? != (Kind::Slab { class }) {
            return Err(spoiled("the first slab of a list", list));
        }
        self.table.check_span(page, class.pages())?;
        let index = line.first_free(class.blocks());
        index.map(|index| (page, index)).ok_or(spoiled("a full slab in a list", list))
    }

    /// So many free pages in a row, their address a multiple of `align` pages. Gives up empty
    /// slabs where there are none.
    pub(super) fn find_pages(&self, pages: usize, align: usize) -> Result<Option<usize>, Error> {
        let skew = self.data.addr() / PAGE_BYTES;
        if let Some(first) = self.table.find(pages, align, skew) {
            return Ok(Some(first));
        }
        let mut page = 0;
        while page < self.table.count() {
            let line = self.table.line(page)?;
            if let Kind::Slab { class } = line.kind()?
                && line.used.load(Ordering::Relaxed) == 0
            {
                self.give_up(page, line, class)?;
            }
            page += self.span_at(page)?.unwrap_or(1);
        }
        Ok(self.table.find(pages, align, skew))
    }

    fn give_up(&self, page: usize, line: &Page, class: Class) -> Result<(), Error> {
        self.unlink(page, line, class)?;
        line.set_kind(Kind::Free);
        self.table.set_used(page, class.pages(), false);
        Ok(())
    }

    fn new_slab(&self, class: Class) -> Result<usize, Error> {
        let pages = class.pages();
        let len_bytes = class.block_bytes();
        let first = self.find_pages(pages, 1)?.ok_or(Error::NoMemory { len_bytes })?;
        let line = self.table.line(first)?;
        line.clear();
        line.used.store(0, Ordering::Relaxed);
        for behind in 1..pages {
            self.table.line(first + behind)?.set_kind(Kind::Body { behind });
        }
        // Last: before this the pages are free, whatever they say of themselves.
        line.set_kind(Kind::Slab { class });
        self.table.set_used(first, pages, true);
        self.link(first, line, class)?;
        Ok(first)
    }

    pub(super) fn take_block(&self, page: usize, index: usize, class: Class) -> Result<(), Error> {
        let line = self.table.line(page)?;
        let used = line.used.load(Ordering::Relaxed);
        if used >= class.blocks() as u64 {
            return Err(spoiled("the count of a slab", used));
        }
        line.set(index, true);
        line.used.store(used + 1, Ordering::Relaxed);
        if used + 1 == class.blocks() as u64 { self.unlink(page, line, class) } else { Ok(()) }
    }

    pub(super) fn give_block(
        &self,
        page: usize,
        index: usize,
        class: Class,
        release: bool,
    ) -> Result<(), Error> {
        let line = self.table.line(page)?;
        line.set(index, false);
        let used = line.used.load(Ordering::Relaxed);
        if used == 0 || used > class.blocks() as u64 {
            return Err(spoiled("the count of a slab", used));
        }
        line.used.store(used - 1, Ordering::Relaxed);
        if used == class.blocks() as u64 {
            self.link(page, line, class)?;
        }
        // One slab stays, so that a block that comes and goes makes and breaks none.
        let is_alone =
            line.next.load(Ordering::Relaxed) == 0 && line.previous.load(Ordering::Relaxed) == 0;
        if used == 1 && release && !is_alone {
            self.give_up(page, line, class)?;
        }
        Ok(())
    }

    /// Puts a slab first in its class's list.
    pub(super) fn link(&self, page: usize, line: &Page, class: Class) -> Result<(), Error> {
        let list = &self.head.lists[class.index()];
        let next = list.load(Ordering::Relaxed);
        if next != 0 {
            self.table.line(next as usize - 1)?.previous.store(page as u64 + 1, Ordering::Relaxed);
        }
        line.next.store(next, Ordering::Relaxed);
        line.previous.store(0, Ordering::Relaxed);
        list.store(page as u64 + 1, Ordering::Relaxed);
        Ok(())
    }

    fn unlink(&self, page: usize, line: &Page, class: Class) -> Result<(), Error> {
        let own = page as u64 + 1;
        let (next, previous) =
            (line.next.load(Ordering::Relaxed), line.previous.load(Ordering::Relaxed));
        let list = &self.head.lists[class.index()];
        let before = match previous {
            0 => list,
            previous => &self.table.line(previous as usize - 1)?.next,
        };
        if before.load(Ordering::Relaxed) != own {
            return Err(spoiled("a slab's neighbour", previous));
        }
        if next != 0 {
            let behind = &self.table.line(next as usize - 1)?.previous;
            if behind.load(Ordering::Relaxed) != own {
                return Err(spoiled("a slab's neighbour", next));
            }
            behind.store(previous, Ordering::Relaxed);
        }
        before.store(next, Ordering::Relaxed);
        line.next.store(0, Ordering::Relaxed);
        line.previous.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes of the pages of a slab or a run that begin at `page`, None where none does.
    pub(super) fn span_at(&self, page: usize) -> Result<Option<usize>, Error> {
        let pages = match self.table.line(page)?.kind()? {
            Kind::Free | Kind::Body { .. } => return Ok(None),
            Kind::Slab { class } => class.pages(),
            Kind::Run { pages } => pages,
        };
        self.table.check_span(page, pages)?;
        debug_assert!(pages * PAGE_BYTES > 0);
        Ok(Some(pages))
    }
}
