//! Positions in a direction's byte stream (spec/wire.md section 2).

/// Bits of a position. The word has 64; state and class take the other 6.
pub const POSITION_BITS: u32 = 58;

const MASK: u64 = (1 << POSITION_BITS) - 1;

/// Ring bytes ever published (or consumed) in a direction, modulo 2^58.
///
/// At 20 GB/s it wraps after 166 days, so comparisons are by distance, never by order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Position(u64);

impl Position {
    pub const ZERO: Self = Self(0);

    /// Keeps the low 58 bits of `raw`.
    pub const fn new(raw: u64) -> Self {
        Self(raw & MASK)
    }

    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position `len_bytes` further on.
    pub const fn plus(self, len_bytes: u64) -> Self {
        Self(self.0.wrapping_add(len_bytes) & MASK)
    }

    /// Bytes from `earlier` to `self`, modulo 2^58. A position that ran backwards gives a
    /// distance near 2^58, larger than any ring: the caller's bound check catches it.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.wrapping_sub(earlier.0) & MASK
    }

    /// Offset of this position in a ring of `size_bytes`, a power of two.
    pub const fn offset(self, size_bytes: u32) -> u32 {
        (self.0 & (size_bytes as u64 - 1)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn since_undoes_plus(start in any::<u64>(), len in 0..(1u64 << 40)) {
            let start = Position::new(start);
            prop_assert_eq!(start.plus(len).since(start), len);
        }

        #[test]
        fn backwards_is_farther_than_any_ring(start in any::<u64>(), len in 1..(1u64 << 40)) {
            let start = Position::new(start);
            prop_assert!(start.since(start.plus(len)) > 1 << 57);
        }

        #[test]
        fn offset_is_inside(start in any::<u64>(), order in 12u32..28) {
            prop_assert!(Position::new(start).offset(1 << order) < 1 << order);
        }
    }
}
