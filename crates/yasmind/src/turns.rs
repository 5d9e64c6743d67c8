//! Who is read from next: users take turns, whatever one of them sends.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

#[derive(Default)]
pub struct Turns {
    /// Clients with something to say, by user; no queue is empty.
    users: BTreeMap<u32, VecDeque<u64>>,
    last_uid: u32,
}

impl Turns {
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }

    pub fn push(&mut self, uid: u32, client: u64) {
        self.users.entry(uid).or_default().push_back(client);
    }

    /// The next client of the next user. It may be gone.
    pub fn next(&mut self) -> Option<u64> {
        let mut after = self.users.range((Excluded(self.last_uid), Unbounded));
        let uid = *after.next().or_else(|| self.users.iter().next())?.0;
        let queue = self.users.get_mut(&uid)?;
        let client = queue.pop_front();
        if queue.is_empty() {
            self.users.remove(&uid);
        }
        self.last_uid = uid;
        client
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_take_turns() {
        let mut turns = Turns::default();
        for (uid, client) in [(1, 10), (1, 11), (1, 12), (2, 20), (3, 30), (2, 21)] {
            turns.push(uid, client);
        }
        let served: Vec<_> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(served, [10, 20, 30, 11, 21, 12]);
        assert!(turns.is_empty());
    }
}
