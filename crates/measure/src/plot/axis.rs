//! Axes: from zero, or by equal ratios; where their marks stand.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::coord::types::RangedCoordf64;

/// What an axis is called, how it is divided, and how its values are written.
pub struct Axis<'a> {
    pub name: &'a str,
    pub scale: Scale,
    pub show: &'a dyn Fn(f64) -> String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal differences are equal lengths.
    Linear,
    /// Equal ratios are equal lengths; marks at 1, 2 and 5.
    Decades,
    /// Equal ratios are equal lengths; marks at powers of two.
    Doublings,
}

/// A scale and the values that it spans.
#[derive(Clone, Copy)]
pub(super) struct Span {
    scale: Scale,
    low: f64,
    high: f64,
}

/// What stands in for zero on a scale of ratios.
const LEAST: f64 = 1e-12;
/// Fewer marks than these say nothing.
const FEWEST: usize = 3;

impl Span {
    pub fn new(scale: Scale, low: f64, high: f64) -> Self {
        let least = if scale == Scale::Linear { f64::NEG_INFINITY } else { LEAST };
        let low = low.max(least);
        // Of one value only: room for it.
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        Self { scale, low, high }
    }

    /// What the scale is linear in.
    fn fold(self, value: f64) -> f64 {
        if self.scale == Scale::Linear { value } else { value.max(LEAST).log2() }
    }

    /// Every `mantissas` of every `step`-th power of `base` within the span.
    fn powers(self, base: f64, step: i32, mantissas: &[f64]) -> Vec<f64> {
        let power = |value: f64| value.log(base).floor() as i32;
        // A value that stands on its end is inside, however it was rounded.
        let within = (self.low * (1.0 - 1e-9))..=(self.high * (1.0 + 1e-9));
        (power(self.low)..=power(self.high) + 1)
            .filter(|power| power.rem_euclid(step) == 0)
            .flat_map(|power| mantissas.iter().map(move |mantissa| mantissa * base.powi(power)))
            .filter(|value| within.contains(value))
            .collect()
    }

    /// Marks of a scale of ratios, from the finest on, until there are no more than `most`.
    fn marks(self, most: usize) -> Option<Vec<f64>> {
        let fitting = |all: Vec<f64>| (all.len() <= most.max(1)).then_some(all);
        let (base, mantissas): (f64, &[&[f64]]) = match self.scale {
            Scale::Linear => return None,
            Scale::Decades => (10.0, &[&[1.0, 2.0, 5.0], &[1.0]]),
            Scale::Doublings => (2.0, &[&[1.0]]),
        };
        let found = mantissas.iter().find_map(|some| fitting(self.powers(base, 1, some)));
        let found =
            found.or_else(|| (2..).find_map(|step| fitting(self.powers(base, step, &[1.0]))));
        found.filter(|all| all.len() >= FEWEST)
    }
}

impl Ranged for Span {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let folded = self.fold(self.low)..self.fold(self.high);
        RangedCoordf64::from(folded).map(&self.fold(*value), limit)
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        // So near each other that ratios and differences look alike.
        let linear = || RangedCoordf64::from(self.range());
        self.marks(hint.bold_points()).unwrap_or_else(|| linear().key_points(hint))
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

/// Three digits at most.
pub fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 1.0 => format!("{value:.1}"),
        v if v >= 0.01 => format!("{value:.2}"),
        _ => format!("{value:.0e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round() {
        let marks = |scale, low, high, most| Span::new(scale, low, high).key_points::<usize>(most);
        assert_eq!(marks(Scale::Decades, 0.9, 60.0, 11), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(marks(Scale::Decades, 1.0, 1e6, 11).len(), 7);
        assert_eq!(marks(Scale::Doublings, 64.0, 1024.0, 5), [64.0, 128.0, 256.0, 512.0, 1024.0]);
        assert_eq!(marks(Scale::Doublings, 64.0, 1024.0, 3), [64.0, 256.0, 1024.0]);
        // Within a step: as on a linear axis.
        assert!(marks(Scale::Decades, 101.0, 118.0, 11).len() > 3);
    }

    #[test]
    fn equal_ratios_are_equal_lengths() {
        let span = Span::new(Scale::Decades, 1.0, 100.0);
        assert_eq!((span.map(&1.0, (0, 200)), span.map(&10.0, (0, 200))), (0, 100));
        let span = Span::new(Scale::Linear, 0.0, 100.0);
        assert_eq!(span.map(&10.0, (0, 200)), 20);
    }

    #[test]
    fn one_value_or_zero_is_no_fault() {
        for scale in [Scale::Linear, Scale::Decades, Scale::Doublings] {
            for value in [0.0, 7.0] {
                let span = Span::new(scale, value, value);
                assert!((0..=200).contains(&span.map(&value, (0, 200))), "{scale:?} {value}");
                assert!(span.key_points::<usize>(11).len() < 100);
            }
        }
    }
}
