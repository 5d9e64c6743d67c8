//! `random`: each function anywhere. Equal seeds give equal plans.

use crate::chain::{check, functions};
use crate::seats::seat;
use crate::{Chain, Error, Host, Plan, Policy};

#[derive(Clone, Copy, Debug, Default)]
pub struct Random {
    pub seed: u64,
}

impl Policy for Random {
    fn name(&self) -> &'static str {
        "random"
    }

    fn plan(&self, host: &Host, chains: &[Chain], _: Option<&Plan>) -> Result<Plan, Error> {
        host.check()?;
        check(host, chains)?;
        let mut random = Dice(self.seed);
        let mut places: Vec<usize> = host
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(place, node)| std::iter::repeat_n(place, node.free.len()))
            .collect();
        // Fisher and Yates.
        for at in (1..places.len()).rev() {
            places.swap(at, random.below(at + 1));
        }
        let mut order = functions(chains);
        let leftover = order.split_off(order.len().min(places.len()));
        let assigned = order.into_iter().zip(places).collect();
        Ok(seat(host, chains, &assigned, &leftover, None))
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): five lines that never change, so that a seed means the
/// same plan in every release.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}
