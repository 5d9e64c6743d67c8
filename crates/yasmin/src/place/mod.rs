//! `yasmin place`: functions go where their traffic says.

mod chains;
pub mod cli;
mod journal;
mod metrics;
mod replay;
mod sources;
mod undo;
mod view;
mod watch;

use cli::{Place, Verb};

pub fn run(options: &Place) -> anyhow::Result<()> {
    match &options.verb {
        Verb::Chains(options) => chains::run(options),
        Verb::Watch(options) => watch::run(options),
        Verb::Replay(options) => replay::run(options),
        Verb::Undo(options) => undo::run(options),
    }
}
