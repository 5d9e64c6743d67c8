//! How fast messages come: a ring is worth its memory and its cache lines where they come faster than a
//! thread that waits for them falls asleep.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::Rate;

/// So many messages, of a thread or of a direction, are judged together: at random moments, seldom on average, they are
/// not fast by chance.
const BATCH: u32 = 64;
/// They are fast, each of them, in a ping-pong by TCP of twice that.
const FAST_US: u64 = 125;
/// And slow from twice that on. In between a thread is neither.
const SLOW_US: u64 = 2 * FAST_US;
/// A message is small that costs less to copy than to wait for.
const SMALL_BYTES: u64 = 4096;

const COUNT_BITS: u32 = 8;
const ROW_BITS: u32 = 8;
const ROW_MOST: u64 = (1 << ROW_BITS) - 1;
const TOOK_SHIFT: u32 = COUNT_BITS + ROW_BITS;

/// The pace of one thread: messages counted so far (the low 8 bits), fast batches in a row up to now (8 bits), and how
/// long the last whole batch took, in ticks. All zero is a fresh one, of which nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pace(pub u64);

impl Pace {
    /// One more message. `begun`: when the batch began; 0: not yet. `now` and `rate` are asked where a batch begins or
    /// ends.
    #[must_use]
    pub fn one_more(
        self,
        begun: &mut u64,
        now: impl Fn() -> u64,
        rate: impl FnOnce() -> Rate,
    ) -> Self {
        if *begun == 0 {
            *begun = now();
        }
        let count = self.0 & ((1 << COUNT_BITS) - 1);
        if count + 1 < u64::from(BATCH) {
            return Self(self.0 + 1);
        }
        let now = now();
        let took = now.wrapping_sub(*begun).clamp(1, u64::MAX >> TOOK_SHIFT);
        *begun = now;
        let row = if took <= fast(rate()) { (self.row() + 1).min(ROW_MOST) } else { 0 };
        Self(took << TOOK_SHIFT | row << COUNT_BITS)
    }

    const fn took(self) -> u64 {
        self.0 >> TOOK_SHIFT
    }

    const fn row(self) -> u64 {
        self.0 >> COUNT_BITS & ROW_MOST
    }

    /// Whether messages come fast, now as in the last batch; and in as many before that as one has to show that has
    /// `seldom` times in a row been fast for no longer than it took to notice: twice as many for each time but the
    /// first.
    pub const fn is_busy(self, seldom: u32, begun: u64, now: u64, rate: Rate) -> bool {
        let batches = 1 << seldom.saturating_sub(1);
        self.row() >= if batches < ROW_MOST { batches } else { ROW_MOST }
            && now.wrapping_sub(begun) <= fast(rate)
    }

    /// Whether they come slowly: the last batch did, or the one under way has taken longer than a slow one.
    pub const fn is_slow(self, begun: u64, now: u64, rate: Rate) -> bool {
        let least = rate.us(SLOW_US * BATCH as u64);
        self.took() > least || now.wrapping_sub(begun) > least
    }
}

/// A fast batch takes no longer.
const fn fast(rate: Rate) -> u64 {
    rate.us(FAST_US * BATCH as u64)
}

/// What one direction of a connection has moved in all.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    pub tcp_bytes: u64,
    pub ring_bytes: u64,
    /// By the ring of the other direction.
    pub back_bytes: u64,
}

/// Whether a direction's ring is of any use. For one user at a time.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Use {
    messages: AtomicU32,
    since: AtomicU64,
    tcp_bytes: AtomicU64,
    ring_bytes: AtomicU64,
    back_bytes: AtomicU64,
}

impl Use {
    /// A message went by TCP. True: it ends a batch, which [`Use::is_none`] judges.
    #[inline]
    pub fn note(&self) -> bool {
        let messages = self.messages.load(Relaxed) + 1;
        let is_whole = messages >= BATCH;
        if !is_whole {
            self.messages.store(messages, Relaxed);
        }
        is_whole
    }

    /// Of the batch that a message just ended. True: all of it went by TCP, small, and slowly, and the other ring moved no
    /// more than such messages. `sleeps`: slowly or not, as those who wait for it sleep for long whatever comes, and the
    /// other ring moved nothing.
    pub fn is_none(&self, moved: Moved, sleeps: bool, rate: Rate, now: u64) -> bool {
        let small = u64::from(BATCH) * SMALL_BYTES;
        let slow = rate.us(SLOW_US * u64::from(BATCH));
        let grew = |field: &AtomicU64, to: u64| to.wrapping_sub(field.load(Relaxed));
        let back = grew(&self.back_bytes, moved.back_bytes);
        let is_slow = now.wrapping_sub(self.since.load(Relaxed)) > slow;
        let is_none = (is_slow && back <= small || sleeps && back == 0)
            && grew(&self.ring_bytes, moved.ring_bytes) == 0
            && grew(&self.tcp_bytes, moved.tcp_bytes) <= small;
        self.begin(moved, now);
        is_none
    }

    fn begin(&self, moved: Moved, now: u64) {
        self.messages.store(0, Relaxed);
        self.since.store(now, Relaxed);
        self.tcp_bytes.store(moved.tcp_bytes, Relaxed);
        self.ring_bytes.store(moved.ring_bytes, Relaxed);
        self.back_bytes.store(moved.back_bytes, Relaxed);
    }

    /// Of a fresh channel.
    pub fn reset(&self, now: u64) {
        self.begin(Moved { tcp_bytes: 0, ring_bytes: 0, back_bytes: 0 }, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tick is a microsecond.
    const RATE: Rate = Rate(1);

    /// The pace of messages that come each `gap` ticks, and when the batch under way began.
    fn pace(messages: u64, gap: u64) -> (Pace, u64) {
        let mut begun = 0;
        let pace = (1..=messages)
            .fold(Pace::default(), |pace, nth| pace.one_more(&mut begun, || nth * gap, || RATE));
        (pace, begun)
    }

    #[test]
    fn of_less_than_a_batch_nothing_is_known() {
        let (pace, begun) = pace(u64::from(BATCH) - 1, 1);
        assert!(!pace.is_busy(1, begun, begun, RATE) && !pace.is_slow(begun, begun, RATE));
    }

    #[test]
    fn a_thread_is_busy_or_slow_by_its_last_batch() {
        for (gap, is_busy, is_slow) in
            [(20, true, false), (120, true, false), (200, false, false), (300, false, true)]
        {
            let messages = 3 * u64::from(BATCH) + 5;
            let (pace, begun) = pace(messages, gap);
            assert_eq!(pace.is_busy(1, begun, messages * gap, RATE), is_busy, "each {gap} us");
            assert_eq!(pace.is_slow(begun, messages * gap, RATE), is_slow, "each {gap} us");
        }
    }

    #[test]
    fn who_was_busy_long_ago_is_not() {
        let messages = u64::from(BATCH);
        let ((pace, begun), most) = (pace(messages, 20), messages * FAST_US);
        assert!(pace.is_busy(1, begun, begun + most, RATE));
        assert!(!pace.is_busy(1, begun, begun + most + 1, RATE));
        assert!(!pace.is_slow(begun, begun + 2 * most, RATE));
        assert!(pace.is_slow(begun, begun + 2 * most + 1, RATE));
    }

    #[test]
    fn who_gave_back_more_often_has_to_be_busy_for_longer() {
        for (seldom, batches) in [(1, 1), (2, 2), (3, 4), (7, 64), (8, 128)] {
            let (before, begun) = pace(u64::from(BATCH) * (batches - 1), 20);
            assert!(!before.is_busy(seldom, begun, begun, RATE), "{seldom}");
            let (enough, begun) = pace(u64::from(BATCH) * batches, 20);
            assert!(enough.is_busy(seldom, begun, begun, RATE), "{seldom}");
            assert!(!enough.is_busy(seldom + 1, begun, begun, RATE), "{seldom}");
        }
        // They are counted up to a bound, and one that was not fast ends the row.
        let (pace, mut begun) = pace(u64::from(BATCH) * 1000, 20);
        assert!(pace.is_busy(31, begun, begun, RATE));
        let late = begun + 1_000_000;
        let pace = (0..BATCH).fold(pace, |pace, _| pace.one_more(&mut begun, || late, || RATE));
        assert!(!pace.is_busy(1, begun, begun, RATE));
    }

    #[test]
    fn a_batch_that_took_very_long_does_not_spill_into_the_count() {
        let mut begun = 1;
        let pace =
            (1..BATCH).fold(Pace::default(), |pace, _| pace.one_more(&mut begun, || 1, || RATE));
        let pace = pace.one_more(&mut begun, || u64::MAX, || RATE);
        assert!(pace.is_slow(begun, begun, RATE));
        assert_eq!(pace.0 & ((1 << COUNT_BITS) - 1), 0);
    }

    /// After how many messages of `bytes`, each `gap` ticks, the ring is of no use, of `most`. `ring` and `back`: what
    /// goes by the two rings with each.
    fn messages_until(most: u64, gap: u64, bytes: u64, ring: u64, back: u64) -> Option<u64> {
        until(false, most, gap, [bytes, ring, back])
    }

    fn until(sleeps: bool, most: u64, gap: u64, [bytes, ring, back]: [u64; 3]) -> Option<u64> {
        let usage = Use::default();
        (1..=most).find(|nth| {
            let moved =
                Moved { tcp_bytes: nth * bytes, ring_bytes: nth * ring, back_bytes: nth * back };
            usage.note() && usage.is_none(moved, sleeps, RATE, nth * gap)
        })
    }

    #[test]
    fn a_ring_is_of_no_use_where_a_batch_comes_slowly_by_tcp() {
        let batch = Some(u64::from(BATCH));
        assert_eq!(messages_until(1000, 1000, 64, 0, 0), batch);
        assert_eq!(messages_until(1000, 1000, SMALL_BYTES, 0, SMALL_BYTES), batch);
    }

    #[test]
    fn it_is_of_use_where_they_are_fast_or_large_or_it_moves_some() {
        assert_eq!(messages_until(1000, 200, 64, 0, 0), None);
        assert_eq!(messages_until(1000, 1000, SMALL_BYTES + 1, 0, 0), None);
        assert_eq!(messages_until(1000, 1000, 64, 1, 0), None);
        assert_eq!(messages_until(1000, 1000, 64, 0, SMALL_BYTES + 1), None);
    }
    #[test]
    fn where_its_users_sleep_a_batch_by_tcp_may_be_fast() {
        assert_eq!(until(true, 1000, 20, [64, 0, 0]), Some(u64::from(BATCH)));
        assert_eq!(until(true, 1000, 20, [64, 1, 0]), None);
        assert_eq!(until(true, 1000, 20, [64, 0, 1]), None);
        assert_eq!(until(true, 1000, 20, [SMALL_BYTES + 1, 0, 0]), None);
    }
}
