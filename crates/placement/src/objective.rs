//! What a plan costs: the sum over neighbours (card, functions, card) of traffic times distance,
//! and a price for every move.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::chain::{Chain, FunctionId, check, traffic_of};
use crate::{Error, Host, Plan};

#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Objective {
    pub moves: MovePrice,
}

/// What it costs to move a function that already has a seat: `share` of what one local hop of
/// its traffic costs, but no less than of the mean chain's. So a light function, whose traffic
/// is mostly noise, is not cheaper to move than it is worth, and nothing moves for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MovePrice {
    pub share: f64,
}

impl Default for MovePrice {
    fn default() -> Self {
        Self { share: 0.03 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Traffic times distance over all hops.
    pub hops: f64,
    /// The price of the moves.
    pub moves: f64,
}

impl Cost {
    pub fn total(&self) -> f64 {
        self.hops + self.moves
    }
}

impl Objective {
    pub fn with_move_share(share: f64) -> Self {
        Self { moves: MovePrice { share } }
    }

    /// The cost of `plan`, coming from `current`. Functions without a seat in `plan` are left
    /// out of their chains.
    pub fn cost(
        &self,
        host: &Host,
        chains: &[Chain],
        plan: &Plan,
        current: Option<&Plan>,
    ) -> Result<Cost, Error> {
        host.check()?;
        check(host, chains)?;
        let mut hops = 0.0;
        for chain in chains {
            let mut stops: Vec<usize> = chain.entry.place(host)?.into_iter().collect();
            for seat in chain.functions.iter().filter_map(|id| plan.seat(*id)) {
                stops.push(host.place(seat.node).ok_or(Error::UnknownNode(seat.node))?);
            }
            stops.extend(chain.exit.place(host)?);
            let distance: f64 = stops.windows(2).map(|hop| host.distance[hop[0]][hop[1]]).sum();
            hops += chain.traffic.rate * distance;
        }
        let mut moves = 0.0;
        if let Some(current) = current {
            let prices = self.move_prices(host, chains);
            for one in plan.moves_from(current).iter().filter(|one| one.from.is_some()) {
                moves += prices.get(&one.function).copied().unwrap_or(0.0);
            }
        }
        Ok(Cost { hops, moves })
    }

    /// What moving each function costs.
    pub fn move_prices(&self, host: &Host, chains: &[Chain]) -> BTreeMap<FunctionId, f64> {
        let local = (0..host.nodes.len()).map(|at| host.distance[at][at]);
        let local = local.fold(f64::INFINITY, f64::min);
        let sum: f64 = chains.iter().map(|chain| chain.traffic.rate).sum();
        let mean = sum / chains.len().max(1) as f64;
        let price = |traffic: f64| self.moves.share * local * traffic.max(mean);
        traffic_of(chains).into_iter().map(|(id, traffic)| (id, price(traffic))).collect()
    }
}
