//! What every measurement here needs: ways that take turns, the spread of their samples, the
//! machine they ran on, and one look for figures, tables and plots.
//!
//! Called by the command and by the programs of `tests/`. It never measures anything itself.

#![forbid(unsafe_code)]

pub mod cpus;
pub mod environment;
pub mod figure;
pub mod page;
pub mod pairs;
pub mod plot;
pub mod progress;
pub mod spread;
pub mod table;
pub mod unit;
