//! Ways that take turns, so that a slow minute of the machine is slow for all of them.

use crate::spread::Spread;
use crate::unit::Unit;

/// The order in which `ways` ways run in `round`: A B, then B A. Over the rounds each is first as
/// often as any other.
pub fn turns(ways: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..ways).map(move |nth| (nth + round) % ways)
}

/// How many times better `new` is than `old`, pair by pair.
pub fn gain(unit: Unit, old: &Spread, new: &Spread) -> Spread {
    let pairs = old.samples.iter().zip(&new.samples);
    let gains = pairs.map(|(old, new)| unit.gain(*old, *new));
    // Nothing is no times better than nothing.
    Spread::of(gains.filter(|gain| gain.is_finite()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_first_in_turn() {
        let of = |ways, round| turns(ways, round).collect::<Vec<_>>();
        assert_eq!((of(2, 0), of(2, 1)), (vec![0, 1], vec![1, 0]));
        assert_eq!((of(3, 1), of(3, 5)), (vec![1, 2, 0], vec![2, 0, 1]));
        assert_eq!(of(0, 3), Vec::<usize>::new());
    }

    #[test]
    fn pairs_are_judged_one_by_one() {
        let old = Spread::of(vec![100.0, 10.0, 0.0]);
        let new = Spread::of(vec![50.0, 2.0, 0.0]);
        assert_eq!(gain(Unit::Nanoseconds, &old, &new).samples, [2.0, 5.0]);
        assert_eq!(gain(Unit::PerSecond, &old, &new).samples, [0.5, 0.2]);
    }
}
