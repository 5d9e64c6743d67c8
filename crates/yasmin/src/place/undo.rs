//! `yasmin place undo`: puts back what a `watch` that was killed left pinned.

use anyhow::bail;
use yasmin_watch::journal::Journal;

use super::{cli, journal};

pub fn run(options: &cli::Undo) -> anyhow::Result<()> {
    let mut journal = Journal::open(&journal::path(&options.journal))?;
    let steps = journal.steps().len();
    let troubles = journal.undo(0);
    for trouble in &troubles {
        eprintln!("yasmin: {trouble}");
    }
    if !troubles.is_empty() {
        bail!("{} of {steps} settings could not be put back", troubles.len());
    }
    println!("{steps} settings put back.");
    Ok(())
}
