//! Where functions, links and their counters come from: one file for each source.
//!
//! A source finds by itself what it counts. It is read about once a second, so what is dear to
//! find is kept and looked for again only when it may have changed. What a source needs is its
//! own affair: a socket, a namespace, or a segment of shared memory that a packet processor
//! counts its interfaces in.

pub mod dpdk;
pub mod file;
pub mod netns;
pub mod yasmin;

use crate::function::Reading;

pub trait Source {
    fn name(&self) -> &'static str;

    /// Everything that it sees now.
    fn read(&mut self) -> Result<Reading, Trouble>;

    /// Something that it said has proved wrong: what it keeps is to be looked for again.
    fn doubt(&mut self) {}
}

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// There is nothing of this kind on this machine now; no reason for a warning.
    #[error("{0}")]
    Absent(String),
    #[error("{0}")]
    Failed(String),
}

impl Trouble {
    pub fn failed(what: impl std::fmt::Display) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Failed(format!("{what}: {error}"))
    }
}
