//! Byte streams that can be checked at any position, and the random numbers of the tests.

use std::fmt;

/// An endless stream of bytes that a seed determines; it can be produced from any position.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    seed: u64,
}

/// The first byte that is not what the stream has there.
#[derive(Debug, PartialEq, Eq)]
pub struct Mismatch {
    pub position: u64,
    pub expected: u8,
    /// What is there, up to 16 bytes.
    pub got: Vec<u8>,
    /// How many bytes were checked together, and how many of them were right.
    pub checked: usize,
    pub right: usize,
    /// How many bytes behind those, up to where it goes on as it should again, if it does.
    pub wrong: Option<usize>,
    /// Where in the stream the bytes found do belong, when they are from elsewhere in it.
    pub belongs_at: Option<u64>,
}

const fn mix(raw: u64) -> u64 {
    let raw = (raw ^ (raw >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let raw = (raw ^ (raw >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    raw ^ (raw >> 31)
}

impl Pattern {
    pub const fn new(seed: u64) -> Self {
        Self { seed: mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15)) }
    }

    const fn word(self, index: u64) -> [u8; 8] {
        mix(self.seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))).to_le_bytes()
    }

    /// Writes the stream's bytes from `position` on.
    pub fn fill(self, position: u64, out: &mut [u8]) {
        let (mut index, skip) = (position / 8, (position % 8) as usize);
        let mut done = 0;
        if skip != 0 {
            let word = self.word(index);
            done = (8 - skip).min(out.len());
            out[..done].copy_from_slice(&word[skip..skip + done]);
            index += 1;
        }
        for chunk in out[done..].chunks_mut(8) {
            let word = self.word(index);
            chunk.copy_from_slice(&word[..chunk.len()]);
            index += 1;
        }
    }

    /// # Errors
    /// The first byte of `data` that differs from the stream at `position`.
    pub fn check(self, position: u64, data: &[u8]) -> Result<(), Mismatch> {
        let mut expected = [0; 4096];
        for (nth, chunk) in data.chunks(expected.len()).enumerate() {
            let at = position + (nth * expected.len()) as u64;
            let expected = &mut expected[..chunk.len()];
            self.fill(at, expected);
            if expected != chunk {
                let bad = expected.iter().zip(chunk).position(|(a, b)| a != b).unwrap_or(0);
                let found = &data[nth * 4096 + bad..];
                return Err(Mismatch {
                    position: at + bad as u64,
                    expected: expected[bad],
                    got: found[..found.len().min(16)].to_vec(),
                    checked: data.len(),
                    right: nth * 4096 + bad,
                    wrong: self.right_again(at + bad as u64, found),
                    belongs_at: self.find(&found[..found.len().min(16)], at + bad as u64),
                });
            }
        }
        Ok(())
    }

    /// After how many of `found`, wrong at `position`, its end is right again from there on.
    fn right_again(self, position: u64, found: &[u8]) -> Option<usize> {
        let mut expected = vec![0; found.len()];
        self.fill(position, &mut expected);
        let right =
            expected.iter().rev().zip(found.iter().rev()).take_while(|(a, b)| a == b).count();
        // A byte or a few are right by chance.
        (right >= 8).then_some(found.len() - right)
    }

    /// Looks for `bytes` within 4 MiB of `near`.
    fn find(self, bytes: &[u8], near: u64) -> Option<u64> {
        const REACH: u64 = 4 << 20;
        if bytes.len() < 8 {
            return None;
        }
        let from = near.saturating_sub(REACH);
        let mut window = vec![0; 2 * REACH as usize];
        self.fill(from, &mut window);
        let at = window.windows(bytes.len()).position(|candidate| candidate == bytes)?;
        Some(from + at as u64)
    }
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        let Self { position, expected, got, checked, right, wrong, belongs_at } = self;
        write!(
            out,
            "at {position} there is {got:02x?}, not {expected:#04x}; {right} of {checked} bytes \
             received together were right"
        )?;
        match wrong {
            Some(wrong) => write!(out, ", {wrong} behind them were not, and the rest was")?,
            None => write!(out, ", nothing behind them was")?,
        }
        match belongs_at {
            Some(there) if there > position => {
                write!(out, "; these bytes belong {} later: bytes were lost", there - position)
            }
            Some(there) => {
                write!(out, "; these bytes belong {} earlier: bytes came twice", position - there)
            }
            None => write!(out, "; these bytes are not of this stream"),
        }
    }
}

/// A small random generator, so that a failing case can be repeated from its seed.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub const fn new(seed: u64) -> Self {
        Self { state: mix(seed ^ 0x5851_f42d_4c95_7f2d) }
    }

    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A number below `end`, which is not 0.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A size in 1..=`max`, small and large ones equally likely.
    pub fn size(&mut self, max: usize) -> usize {
        let bits = usize::BITS - max.leading_zeros();
        let limit = 1usize << self.below(u64::from(bits) + 1);
        1 + self.below(limit.min(max) as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_position_gives_the_same_bytes() {
        let pattern = Pattern::new(7);
        let mut whole = vec![0; 10_000];
        pattern.fill(0, &mut whole);
        for at in [0, 1, 7, 8, 9, 4095, 4096, 4097, 9_990] {
            assert_eq!(pattern.check(at as u64, &whole[at..]), Ok(()));
        }
    }

    #[test]
    fn lost_and_doubled_bytes_are_named() {
        let pattern = Pattern::new(7);
        let mut data = vec![0; 6000];
        pattern.fill(1000, &mut data);
        data.drain(4500..4600);
        let lost = pattern.check(1000, &data).unwrap_err();
        assert_eq!((lost.position, lost.belongs_at, lost.wrong), (5500, Some(5600), None));
        let foreign = Pattern::new(8).check(1000, &data).unwrap_err();
        assert_eq!(foreign.belongs_at, None);
        pattern.fill(1000, &mut data);
        data[4500..4600].fill(0);
        let overwritten = pattern.check(1000, &data).unwrap_err();
        assert_eq!((overwritten.right, overwritten.wrong), (4500, Some(100)));
    }

    #[test]
    fn sizes_stay_in_range() {
        let mut rng = Rng::new(1);
        for max in [1, 2, 3, 4096, 262_144] {
            for _ in 0..1000 {
                assert!((1..=max).contains(&rng.size(max)));
            }
        }
    }
}
