//! Where the pages of a channel come from (spec/wire.md section 6.2).

/// What an end has to know of it: nothing but what this says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Medium {
    /// A sealed memfd: both ends are of one kernel.
    Memfd = 0,
    /// A slice of a region that two guests map. It has no seals, and the driver vouches that no access
    /// to it faults. Clocks and CPU numbers of the peer mean nothing.
    Ivshmem = 1,
}

impl Medium {
    /// `None`: there is no such medium.
    pub const fn decode(raw: u64) -> Option<Self> {
        match raw {
            0 => Some(Self::Memfd),
            1 => Some(Self::Ivshmem),
            _ => None,
        }
    }

    /// Whether the peer runs under the same kernel, so that its CPU numbers can be compared.
    pub const fn is_one_kernel(self) -> bool {
        matches!(self, Self::Memfd)
    }
}
