//! Samples of one quantity: few, so all are kept.

use serde::Serialize;

#[derive(Clone, Debug, Default, Serialize)]
pub struct Spread {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub samples: Vec<f64>,
}

impl Spread {
    pub fn of(samples: Vec<f64>) -> Self {
        let mut spread = Self { samples, ..Self::default() };
        spread.finish();
        spread
    }

    pub fn add(&mut self, sample: f64) {
        self.samples.push(sample);
    }

    /// Works out median and ends; 0 where there are no samples.
    pub fn finish(&mut self) {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
        let len = sorted.len();
        self.median = match len % 2 {
            1 => at(len / 2),
            _ => (at((len / 2).saturating_sub(1)) + at(len / 2)) / 2.0,
        };
        self.min = at(0);
        self.max = at(len.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        let spread = Spread::of(vec![3.0, 1.0, 2.0]);
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of(vec![4.0, 1.0, 2.0, 3.0]).median, 2.5);
        assert_eq!(Spread::of(Vec::new()).median, 0.0);
    }
}
