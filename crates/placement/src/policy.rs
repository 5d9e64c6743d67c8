//! One way of deciding behind one trait.

use serde::{Deserialize, Serialize};

use crate::{
    Adaptive, Chain, ChainFirst, Error, Exact, FirstFree, Host, NumadLike, Objective, Plan, Random,
};

/// A way of deciding where functions go. Pure: equal input gives an equal plan.
///
/// `current` is where the functions are now. Functions in it that are in no chain are not
/// planned for; functions of chains that are not in it are new.
pub trait Policy {
    fn name(&self) -> &'static str;

    fn plan(&self, host: &Host, chains: &[Chain], current: Option<&Plan>) -> Result<Plan, Error>;
}

/// What policies can be told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    pub objective: Objective,
    /// For `random`.
    pub seed: u64,
}

/// The names that [`policy`] knows.
pub const POLICIES: [&str; 6] =
    ["adaptive", "chain-first", "exact", "first-free", "numad-like", "random"];

/// The policy of that name.
pub fn policy(name: &str, settings: &Settings) -> Result<Box<dyn Policy + Send + Sync>, Error> {
    Ok(match name {
        "adaptive" => Box::new(Adaptive { objective: settings.objective }),
        "chain-first" => Box::new(ChainFirst),
        "exact" => Box::new(Exact { objective: settings.objective, ..Exact::default() }),
        "first-free" => Box::new(FirstFree),
        "numad-like" => Box::new(NumadLike),
        "random" => Box::new(Random { seed: settings.seed }),
        _ => return Err(Error::UnknownPolicy(name.to_owned(), POLICIES.join(", "))),
    })
}
