//! `random`: each function anywhere. Equal seeds give equal plans.

use crate::chain::{check, functions};
use crate::dice::Dice;
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
        random.shuffle(&mut places);
        let mut order = functions(chains);
        let leftover = order.split_off(order.len().min(places.len()));
        let assigned = order.into_iter().zip(places).collect();
        Ok(seat(host, chains, &assigned, &leftover, None))
    }
}
