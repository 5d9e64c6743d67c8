//! How much memory is set aside for channels, in all and for each user.
//!
//! It counts what the ends may use as honest programs do; the kernel charges the pages to
//! whoever touches them first.

use std::collections::HashMap;

const ROOT: u32 = 0;

#[derive(Debug)]
pub struct Budget {
    limit_bytes: u64,
    user_limit_bytes: u64,
    /// Sum of `users`, at most `limit_bytes`.
    used_bytes: u64,
    /// No entry is 0 or more than `user_limit_bytes`.
    users: HashMap<u32, u64>,
    /// What of it is set aside for a user's connections with another one; no entry is 0.
    pairs: HashMap<(u32, u32), u64>,
}

/// The limit of all, or of one user, would be passed.
#[derive(Debug, PartialEq, Eq)]
pub struct Spent;

impl Budget {
    pub fn new(limit_bytes: u64, user_limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            user_limit_bytes,
            used_bytes: 0,
            users: HashMap::new(),
            pairs: HashMap::new(),
        }
    }

    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Until the limit of all.
    pub const fn left_bytes(&self) -> u64 {
        self.limit_bytes.saturating_sub(self.used_bytes)
    }

    /// Until this user's own limit.
    pub fn left_of(&self, uid: u32) -> u64 {
        self.user_limit_bytes.saturating_sub(self.users.get(&uid).copied().unwrap_or(0))
    }

    /// # Errors
    /// `Spent`, and nothing is set aside.
    pub fn take(&mut self, uid: u32, bytes: u64) -> Result<(), Spent> {
        let of_user = self.users.get(&uid).copied().unwrap_or(0);
        let fits = |used: u64, limit: u64| used.checked_add(bytes).is_some_and(|sum| sum <= limit);
        if !fits(self.used_bytes, self.limit_bytes) || !fits(of_user, self.user_limit_bytes) {
            return Err(Spent);
        }
        if bytes > 0 {
            self.used_bytes += bytes;
            self.users.insert(uid, of_user + bytes);
        }
        Ok(())
    }

    /// The same for an end of `uid`'s connection with `peer`. Another user, unless it is root, gets no more of this
    /// one's part than is left for all others: else one client would have a server's part, and the other clients TCP.
    ///
    /// # Errors
    /// As `take`.
    pub fn take_for(&mut self, uid: u32, peer: u32, bytes: u64) -> Result<(), Spent> {
        if peer == uid || peer == ROOT {
            return self.take(uid, bytes);
        }
        let of_pair = self.pairs.get(&(uid, peer)).copied().unwrap_or(0);
        let with_it = of_pair.checked_add(bytes).ok_or(Spent)?;
        if with_it > self.left_of(uid).saturating_sub(bytes) {
            return Err(Spent);
        }
        self.take(uid, bytes)?;
        if bytes > 0 {
            self.pairs.insert((uid, peer), with_it);
        }
        Ok(())
    }

    /// Gives back what `take_for` set aside.
    pub fn give_back_for(&mut self, uid: u32, peer: u32, bytes: u64) {
        if let Some(of_pair) = self.pairs.get_mut(&(uid, peer)) {
            *of_pair -= bytes.min(*of_pair);
            if *of_pair == 0 {
                self.pairs.remove(&(uid, peer));
            }
        }
        self.give_back(uid, bytes);
    }

    /// Gives back what `take` set aside for `uid`.
    pub fn give_back(&mut self, uid: u32, bytes: u64) {
        let Some(of_user) = self.users.get_mut(&uid) else { return };
        let bytes = bytes.min(*of_user);
        *of_user -= bytes;
        self.used_bytes -= bytes;
        if *of_user == 0 {
            self.users.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_all_and_of_one_user() {
        let mut budget = Budget::new(100, 60);
        assert_eq!(budget.take(1, 60), Ok(()));
        assert_eq!(budget.take(1, 1), Err(Spent));
        assert_eq!(budget.take(2, 41), Err(Spent));
        assert_eq!(budget.take(2, 40), Ok(()));
        assert_eq!(budget.take(3, 1), Err(Spent));
        budget.give_back(1, 60);
        assert_eq!(budget.used_bytes(), 40);
        assert_eq!(budget.take(3, 60), Ok(()));
    }

    #[test]
    fn one_peer_leaves_something_to_the_others() {
        let (server, [rude, other]) = (7, [1000, 1001]);
        let mut budget = Budget::new(1000, 100);
        let taken = (0..100).take_while(|_| budget.take_for(server, rude, 1).is_ok()).count();
        assert_eq!(taken, 50);
        assert_eq!(budget.take_for(server, other, 25), Ok(()));
        assert_eq!(budget.take_for(server, other, 1), Err(Spent));
        // Its own connections, and root's, have the rest.
        assert_eq!(budget.take_for(server, 0, 5), Ok(()));
        assert_eq!(budget.take_for(server, server, 20), Ok(()));
        assert_eq!(budget.left_of(server), 0);
        budget.give_back_for(server, rude, 50);
        assert_eq!(budget.take_for(server, other, 1), Ok(()));
        budget.give_back_for(server, other, 26);
        budget.give_back_for(server, 0, 5);
        budget.give_back_for(server, server, 20);
        assert_eq!(budget.used_bytes(), 0);
        assert!(budget.users.is_empty() && budget.pairs.is_empty());
    }

    #[test]
    fn nothing_overflows() {
        let mut budget = Budget::new(u64::MAX, u64::MAX);
        assert_eq!(budget.take(1, u64::MAX - 1), Ok(()));
        assert_eq!(budget.take(1, 2), Err(Spent));
    }

    #[test]
    fn all_given_back_leaves_no_trace() {
        let mut budget = Budget::new(100, 100);
        assert_eq!(budget.take(1, 10), Ok(()));
        budget.give_back(1, 10);
        budget.give_back(1, 10);
        assert_eq!(budget.used_bytes(), 0);
        assert!(budget.users.is_empty());
    }
}
