//! Warnings that somebody outside can cause: a few a minute, however often they are caused.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

const EVERY_S: u64 = 10;

/// One for each place that warns.
pub struct Limit {
    /// Seconds since the first use of any, plus one, of the last one that was written.
    last_s: AtomicU64,
    left_out: AtomicU32,
}

impl Limit {
    pub const fn new() -> Self {
        Self { last_s: AtomicU64::new(0), left_out: AtomicU32::new(0) }
    }

    /// `Some`: write it; so many were left out since the last one.
    pub fn passes(&self) -> Option<u32> {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        self.passes_at(START.get_or_init(Instant::now).elapsed().as_secs() + 1)
    }

    fn passes_at(&self, now_s: u64) -> Option<u32> {
        let last_s = self.last_s.load(Relaxed);
        if last_s != 0 && now_s < last_s + EVERY_S {
            self.left_out.fetch_add(1, Relaxed);
            return None;
        }
        self.last_s.store(now_s, Relaxed);
        Some(self.left_out.swap(0, Relaxed))
    }
}

/// As `tracing::warn!`.
macro_rules! warn_rarely {
    ($($message:tt)*) => {{
        static LIMIT: $crate::rarely::Limit = $crate::rarely::Limit::new();
        if let Some(left_out) = LIMIT.passes() {
            tracing::warn!(left_out, $($message)*);
        }
    }};
}
pub(crate) use warn_rarely as warn;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_ten_seconds() {
        let limit = Limit::new();
        assert_eq!(limit.passes_at(1), Some(0));
        assert_eq!((limit.passes_at(2), limit.passes_at(10)), (None, None));
        assert_eq!(limit.passes_at(11), Some(2));
        assert_eq!(limit.passes_at(12), None);
    }
}
