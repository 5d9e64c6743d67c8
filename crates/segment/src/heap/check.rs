//! Whether a heap is whole: everything that is derived against what it is derived from.

use super::pages::Kind;
use super::{Error, Heap, Ordering};

/// What a heap has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub pages: usize,
    pub used_pages: usize,
    pub blocks: usize,
    /// Of blocks in use, with what they have beyond what was asked for.
    pub block_bytes: usize,
}

impl Heap<'_> {
    pub(super) fn report(&self) -> Result<Report, Error> {
        let spoiled = |what, value: usize| Error::Spoiled { what, value: value as u64 };
        let mut report = Report { pages: self.table.count(), ..Report::default() };
        let mut listed = 0;
        let mut page = 0;
        while page < report.pages {
            let line = self.table.line(page)?;
            let Some(pages) = self.span_at(page)? else {
                if self.table.is_used(page) {
                    return Err(spoiled("a page in use without a block", page));
                }
                page += 1;
                continue;
            };
            if let Kind::Slab { class } = line.kind()? {
                let used = line.count();
                if used > class.blocks() || used as u64 != line.used.load(Ordering::Relaxed) {
                    return Err(spoiled("the count of a slab", used));
                }
                listed += usize::from(used < class.blocks());
                report.blocks += used;
                report.block_bytes += used * class.block_bytes();
            } else {
                report.blocks += 1;
                report.block_bytes += pages * super::PAGE_BYTES;
            }
            if let Some(free) = (page..page + pages).find(|page| !self.table.is_used(*page)) {
                return Err(spoiled("a page of a block that counts as free", free));
            }
            report.used_pages += pages;
            page += pages;
        }
        for list in &self.head.lists {
            let (mut at, mut previous) = (list.load(Ordering::Relaxed), 0);
            while at != 0 {
                let line = self.table.line(at as usize - 1)?;
                if listed == 0 || line.previous.load(Ordering::Relaxed) != previous {
                    return Err(spoiled("a list of slabs", at as usize));
                }
                listed -= 1;
                (previous, at) = (at, line.next.load(Ordering::Relaxed));
            }
        }
        if listed != 0 {
            return Err(spoiled("a slab that is in no list", listed));
        }
        Ok(report)
    }
}
