//! One wait, from its first look to its answer: look, watch, park, sleep.

use crate::{Budget, Watched};

/// What a look, or parking, came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<A> {
    /// The wait is over.
    Answer(A),
    /// Something came, all of it is taken, and the wait wants more: it watches again as from the
    /// beginning.
    Part,
    /// Nothing so far. After parking: something came meanwhile, and a look finds it.
    Nothing,
    /// All is parked and this thread is counted as a sleeper: nothing comes by ring until it has
    /// slept.
    Asleep,
}

/// What a wait is for, and all that it can do; the engine decides only in which order.
///
/// Nothing is missed as long as these hold:
/// - `look` finds everything that came before it began and that the kernel does not tell a
///   sleeper;
/// - after `park` said `Asleep`, whatever comes is something that ends `sleep`, or others wake
///   this thread for it, until `sleep` is over;
/// - what stirs a watch a later look finds, or it is gone by then.
pub trait Interests {
    type Answer;

    /// What there is without waiting. `budget`: what is left for watching, once this wait has
    /// begun to.
    fn look(&mut self, budget: Option<&Budget>) -> Found<Self::Answer>;

    /// How long this wait may watch. Asked after a look that found nothing.
    fn budget(&mut self) -> Budget;

    /// Whether there is anything to watch, and no signal was handled that ends the wait.
    fn is_watchable(&self) -> bool;

    /// Watches until something stirs, and learns from what came of it.
    fn watch(&mut self, budget: &mut Budget) -> Watched;

    /// Parks everything and counts this thread as a sleeper.
    fn park(&mut self) -> Found<Self::Answer>;

    /// Sleeps in the kernel, and no longer counts as a sleeper then. `Answer`, or `Part`, or
    /// `Nothing`: it woke for something that was no answer.
    fn sleep(&mut self) -> Found<Self::Answer>;
}

/// Waits for `interests`.
#[inline]
pub fn wait<I: Interests>(interests: &mut I) -> I::Answer {
    let mut budget = None;
    let mut is_asleep = false;
    loop {
        let found = if is_asleep {
            interests.sleep()
        } else {
            match interests.look(budget.as_ref()) {
                found @ (Found::Nothing | Found::Part) => {
                    if matches!(found, Found::Part) {
                        budget = None;
                    }
                    let budget = budget.get_or_insert_with(|| interests.budget());
                    if !budget.is_spent() && interests.is_watchable() {
                        if interests.watch(budget) == Watched::GaveWay {
                            *budget = Budget::new(0);
                        }
                        continue;
                    }
                    interests.park()
                }
                found => found,
            }
        };
        is_asleep = matches!(found, Found::Asleep);
        match found {
            Found::Answer(answer) => return answer,
            Found::Part => budget = None,
            Found::Nothing | Found::Asleep => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    /// Plays what it was given, and writes down what it was asked.
    struct Script {
        looks: VecDeque<Found<u32>>,
        parks: VecDeque<Found<u32>>,
        sleeps: VecDeque<Found<u32>>,
        watches: VecDeque<Watched>,
        budget: u64,
        is_watchable: bool,
        asked: Vec<&'static str>,
    }

    impl Script {
        fn new() -> Self {
            Self {
                looks: VecDeque::new(),
                parks: VecDeque::new(),
                sleeps: VecDeque::new(),
                watches: VecDeque::new(),
                budget: 10,
                is_watchable: true,
                asked: Vec::new(),
            }
        }

        fn wait(mut self) -> (u32, Vec<&'static str>) {
            let answer = wait(&mut self);
            (answer, self.asked)
        }
    }

    impl Interests for Script {
        type Answer = u32;

        fn look(&mut self, budget: Option<&Budget>) -> Found<u32> {
            self.asked.push(match budget {
                None => "look",
                Some(budget) if budget.is_spent() => "look, spent",
                Some(_) => "look, watching",
            });
            self.looks.pop_front().unwrap_or(Found::Nothing)
        }

        fn budget(&mut self) -> Budget {
            self.asked.push("budget");
            Budget::new(self.budget)
        }

        fn is_watchable(&self) -> bool {
            self.is_watchable
        }

        fn watch(&mut self, budget: &mut Budget) -> Watched {
            self.asked.push("watch");
            let watched = self.watches.pop_front().unwrap_or(Watched::InVain);
            if watched == Watched::InVain {
                *budget = Budget::new(0);
            }
            watched
        }

        fn park(&mut self) -> Found<u32> {
            self.asked.push("park");
            self.parks.pop_front().unwrap_or(Found::Asleep)
        }

        fn sleep(&mut self) -> Found<u32> {
            self.asked.push("sleep");
            self.sleeps.pop_front().unwrap_or(Found::Answer(9))
        }
    }

    #[test]
    fn what_is_there_needs_no_wait() {
        let mut script = Script::new();
        script.looks.push_back(Found::Answer(1));
        assert_eq!(script.wait(), (1, ["look"].into()));
    }

    #[test]
    fn watches_then_looks_then_parks_then_sleeps() {
        let (answer, asked) = Script::new().wait();
        assert_eq!(answer, 9);
        assert_eq!(asked, ["look", "budget", "watch", "look, spent", "park", "sleep"]);
    }

    #[test]
    fn what_stirs_is_looked_at_within_the_same_budget() {
        let mut script = Script::new();
        script.watches.extend([Watched::Stirs, Watched::Stirs]);
        script.looks.extend([Found::Nothing, Found::Nothing, Found::Answer(2)]);
        let (answer, asked) = script.wait();
        assert_eq!(answer, 2);
        assert_eq!(asked, ["look", "budget", "watch", "look, watching", "watch", "look, watching"]);
    }

    #[test]
    fn who_gave_way_looks_once_more_and_sleeps() {
        let mut script = Script::new();
        script.watches.push_back(Watched::GaveWay);
        let (_, asked) = script.wait();
        assert_eq!(asked, ["look", "budget", "watch", "look, spent", "park", "sleep"]);
    }

    #[test]
    fn without_a_budget_or_anything_to_watch_it_parks_at_once() {
        let mut script = Script::new();
        script.budget = 0;
        assert_eq!(script.wait().1, ["look", "budget", "park", "sleep"]);
        let mut script = Script::new();
        script.is_watchable = false;
        assert_eq!(script.wait().1, ["look", "budget", "park", "sleep"]);
    }

    #[test]
    fn what_came_while_it_parked_is_looked_for_without_sleep() {
        let mut script = Script::new();
        script.budget = 0;
        script.parks.push_back(Found::Nothing);
        script.looks.extend([Found::Nothing, Found::Answer(3)]);
        let (answer, asked) = script.wait();
        assert_eq!(answer, 3);
        assert_eq!(asked, ["look", "budget", "park", "look, spent"]);
    }

    #[test]
    fn a_part_is_worth_a_new_watch_and_a_waking_for_nothing_is_not() {
        let mut script = Script::new();
        script.looks.push_back(Found::Part);
        script.sleeps.extend([Found::Nothing, Found::Part, Found::Answer(4)]);
        let (answer, asked) = script.wait();
        assert_eq!(answer, 4);
        let until_asleep = ["look", "budget", "watch", "look, spent", "park", "sleep"];
        let after_nothing = ["look, spent", "park", "sleep"];
        let after_a_part = ["look", "budget", "watch", "look, spent", "park", "sleep"];
        assert_eq!(asked, [&until_asleep[..], &after_nothing, &after_a_part].concat());
    }

    #[test]
    fn what_comes_in_parts_is_watched_for_each_time() {
        let mut script = Script::new();
        script.looks.extend([Found::Nothing, Found::Part, Found::Answer(5)]);
        let (_, asked) = script.wait();
        let again = ["look, spent", "budget", "watch", "look, spent"];
        assert_eq!(asked, [&["look", "budget", "watch"][..], &again].concat());
    }

    #[test]
    fn a_look_may_put_it_to_sleep_by_itself() {
        let mut script = Script::new();
        script.looks.push_back(Found::Asleep);
        assert_eq!(script.wait().1, ["look", "sleep"]);
    }
}
