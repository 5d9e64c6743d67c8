//! Size classes: four for each doubling, so that a block wastes a fifth at most.

use super::PAGE_BYTES;

const SIZES: [u16; 27] = [
    16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
    1280, 1536, 1792, 2048, 2560, 3072, 3584,
];
pub(super) const CLASSES: usize = SIZES.len();
/// Up to this size a slab is one page.
const SMALL_BYTES: usize = 1024;
pub(super) const MAX_SLAB_PAGES: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class(u8);

impl Class {
    /// The smallest one whose blocks have the size and the alignment; None: whole pages.
    pub fn of(len_bytes: usize, align_bytes: usize) -> Option<Self> {
        let fits = |size: &u16| {
            let size = usize::from(*size);
            size >= len_bytes && size.is_multiple_of(align_bytes)
        };
        SIZES.iter().position(fits).map(|index| Self(index as u8))
    }

    pub fn from_index(peer_index: usize) -> Option<Self> {
        (peer_index < CLASSES).then_some(Self(peer_index as u8))
    }

    pub fn index(self) -> usize {
        self.0.into()
    }

    pub fn block_bytes(self) -> usize {
        SIZES[self.index()].into()
    }

    /// Pages of a slab.
    pub fn pages(self) -> usize {
        if self.block_bytes() <= SMALL_BYTES { 1 } else { MAX_SLAB_PAGES }
    }

    /// Blocks of a slab: at most 256.
    pub fn blocks(self) -> usize {
        self.pages() * PAGE_BYTES / self.block_bytes()
    }
}
