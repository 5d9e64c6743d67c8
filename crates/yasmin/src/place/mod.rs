//! `yasmin place`: functions go where their traffic says.

mod chains;
pub mod cli;
mod evaluate;
mod journal;
mod metrics;
mod plan;
mod replay;
mod scenario;
mod simulate;
mod sources;
mod undo;
mod view;
mod watch;

use cli::{Place, Verb};

pub fn run(options: &Place) -> anyhow::Result<()> {
    match &options.verb {
        Verb::Plan(options) => plan::run(options),
        Verb::Simulate(options) => simulate::run(options),
        Verb::Evaluate(options) => evaluate::run(options),
        Verb::Chains(options) => chains::run(options),
        Verb::Watch(options) => watch::run(options),
        Verb::Replay(options) => replay::run(options),
        Verb::Undo(options) => undo::run(options),
    }
}
