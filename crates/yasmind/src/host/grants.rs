//! Who holds which slice of one region. Pure: no file, no clock.
//!
//! Each time that a slice is given it gets a new grant number, one for both guests. A guest holds it by
//! that number until it says of that very number that it does not, or tells all that it holds anew. So
//! a message that is late or comes twice frees nothing that was given since. A slice is given only when
//! neither guest holds it, by any number.
//!
//! What a guest says changes its own column and nothing else: one that lies gets, or spoils, slices of
//! this region, which it can write anyway, and cannot free what the other one holds.

/// By what number each of the two guests holds a slice; `None`: it does not.
type Slice = [Option<u64>; 2];

/// What a guest held before it has told: any number, which no message frees.
const UNKNOWN: u64 = 0;

pub struct Grants {
    slices: Vec<Slice>,
    /// Of the next grant; never 0, never used twice.
    next: u64,
    /// A guest has lost the memory, or never told what it holds: nothing is given any more.
    is_closed: bool,
}

impl Grants {
    /// Of `count` slices that nobody holds. `first`: the first grant's number.
    pub fn new(count: usize, first: u64) -> Self {
        Self { slices: vec![[None; 2]; count], next: first.max(1), is_closed: false }
    }

    /// Of `count` slices that an earlier broker may have given: each is held until both have told.
    pub fn adopted(count: usize, first: u64) -> Self {
        Self { slices: vec![[Some(UNKNOWN); 2]; count], ..Self::new(0, first) }
    }

    pub const fn count(&self) -> usize {
        self.slices.len()
    }

    /// Nobody holds anything.
    pub fn is_idle(&self) -> bool {
        self.slices.iter().all(|slice| *slice == [None; 2])
    }

    pub fn is_free(&self, index: usize) -> bool {
        self.slices.get(index) == Some(&[None; 2])
    }

    /// A slice that neither guest holds; `None`: there is none.
    pub fn free(&self) -> Option<usize> {
        if self.is_closed { None } else { (0..self.count()).find(|&index| self.is_free(index)) }
    }

    /// Gives a free slice to both guests: the grant's number. `None`: it is not free.
    pub fn give(&mut self, index: usize) -> Option<u64> {
        if self.is_closed || !self.is_free(index) {
            return None;
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1).max(1);
        *self.slices.get_mut(index)? = [Some(number); 2];
        Some(number)
    }

    /// A guest holds this grant no more. True: now nobody holds the slice.
    pub fn freed(&mut self, side: usize, index: usize, number: u64) -> bool {
        let Some(slice) = self.slices.get_mut(index) else { return false };
        if number == UNKNOWN || slice[side] != Some(number) {
            return false;
        }
        slice[side] = None;
        *slice == [None; 2]
    }

    /// A guest says what it holds, by index and number: that, and nothing else.
    pub fn told(&mut self, side: usize, held: &[(usize, u64)]) {
        for slice in &mut self.slices {
            slice[side] = None;
        }
        for &(index, number) in held {
            if let Some(slice) = self.slices.get_mut(index) {
                slice[side] = Some(number);
            }
        }
    }

    /// A guest has lost the memory. What it held is a copy of its own; the other one may hold on, so
    /// nothing of this region is given again.
    pub fn close(&mut self) {
        self.is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_slice_is_free_when_both_have_said_so() {
        let mut grants = Grants::new(1, 5);
        assert_eq!((grants.free(), grants.give(0)), (Some(0), Some(5)));
        assert_eq!((grants.free(), grants.give(0)), (None, None));
        assert!(!grants.freed(0, 0, 5) && !grants.freed(0, 0, 5));
        assert_eq!(grants.give(0), None);
        assert!(grants.freed(1, 0, 5));
        assert_eq!(grants.give(0), Some(6));
    }

    #[test]
    fn a_late_or_repeated_message_frees_no_later_grant() {
        let mut grants = Grants::new(1, 5);
        grants.give(0);
        grants.freed(0, 0, 5);
        grants.freed(1, 0, 5);
        assert_eq!(grants.give(0), Some(6));
        for side in [0, 1] {
            assert!(!grants.freed(side, 0, 5));
        }
        assert_eq!(grants.give(0), None);
    }

    #[test]
    fn what_could_not_be_taken_leaves_the_older_grant() {
        let mut grants = Grants::new(2, 5);
        grants.give(0);
        // The guest has it by an older number: what it says of the newer one frees nothing.
        grants.told(0, &[(0, 4)]);
        assert!(!grants.freed(0, 0, 5) && !grants.freed(1, 0, 5));
        assert_eq!(grants.free(), Some(1));
        assert!(grants.freed(0, 0, 4));
        assert_eq!(grants.free(), Some(0));
    }

    #[test]
    fn what_an_earlier_broker_gave_is_free_when_both_have_told() {
        let mut grants = Grants::adopted(2, 5);
        assert!(!grants.freed(0, 0, UNKNOWN) && !grants.is_idle());
        grants.told(0, &[]);
        assert_eq!(grants.free(), None);
        grants.told(1, &[(0, 3), (9, 3)]);
        assert_eq!(grants.free(), Some(1));
        assert!(grants.freed(1, 0, 3) && grants.is_idle());
    }

    #[test]
    fn a_region_that_a_guest_has_lost_is_given_no_more() {
        let mut grants = Grants::new(1, 1);
        grants.close();
        assert_eq!((grants.free(), grants.give(0)), (None, None));
    }

    /// What a guest can say, true or not.
    #[derive(Clone, Debug)]
    enum Step {
        Give(usize),
        /// The honest guest lets go of what it holds of a slice, and says so.
        Drop(usize),
        /// The honest guest's broker begins anew.
        Tell,
        /// The other one says what it likes.
        LieFreed(usize, u64),
        LieTold(Vec<(usize, u64)>),
        /// A message of the honest guest's comes once more.
        Again(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        let slice = 0..4_usize;
        let number = 0..24_u64;
        prop_oneof![
            3 => slice.clone().prop_map(Step::Give),
            2 => slice.clone().prop_map(Step::Drop),
            1 => Just(Step::Tell),
            2 => (slice.clone(), number.clone()).prop_map(|(at, n)| Step::LieFreed(at, n)),
            1 => prop::collection::vec((slice, number), 0..5).prop_map(Step::LieTold),
            1 => (0..8_usize).prop_map(Step::Again),
        ]
    }

    proptest! {
        /// Whatever the other guest says, nothing is given that an honest one holds.
        #[test]
        fn nothing_is_given_that_an_honest_guest_holds(
            steps in prop::collection::vec(step(), 0..200),
            side in 0..2_usize,
        ) {
            let mut grants = Grants::new(4, 1);
            let mut holds: [Option<u64>; 4] = [None; 4];
            let mut said: Vec<(usize, u64)> = Vec::new();
            for step in steps {
                match step {
                    Step::Give(at) => if let Some(number) = grants.give(at) {
                        prop_assert_eq!(holds[at], None);
                        holds[at] = Some(number);
                    },
                    Step::Drop(at) => if let Some(number) = holds[at].take() {
                        grants.freed(side, at, number);
                        said.push((at, number));
                    },
                    Step::Tell => {
                        let held: Vec<_> =
                            (0..4).filter_map(|at| Some((at, holds[at]?))).collect();
                        grants.told(side, &held);
                    }
                    Step::LieFreed(at, number) => { grants.freed(1 - side, at, number); }
                    Step::LieTold(held) => grants.told(1 - side, &held),
                    Step::Again(at) => if let Some(&(at, number)) = said.get(at) {
                        grants.freed(side, at, number);
                    },
                }
            }
        }
    }
}
