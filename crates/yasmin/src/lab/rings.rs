//! The broker of the lab, its own or one that was given, and what it counted.

use std::path::{Path, PathBuf};

use yasmin_control::status::Status;

use crate::broker::Client;
use crate::broker::client::Trouble;
use crate::demo::broker::{Broker, Totals};

/// When connections get rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offers {
    /// From their first byte on, and whole ones: small kernels would be over before a connection has
    /// proven busy, and show what TCP costs.
    AtOnce,
    /// As users have it.
    Default,
}

/// See libyasmin(7).
const AT_ONCE: [&str; 2] = ["YASMIN_PROMOTE_MESSAGES=0", "YASMIN_PROMOTE_WAIT_MS=2000"];

/// See yasmind(8). Rings that grow as they prove too small would still be growing when a kernel
/// with a few long messages is over: the matrix product sends three.
const WHOLE_RINGS: [&str; 2] = ["--first-class", "9"];

pub struct Rings {
    socket: PathBuf,
    offers: Offers,
    /// Gone with the value.
    _own: Option<Broker>,
}

impl Rings {
    /// Starts a broker in `folder`, unless `given` says where one listens.
    pub fn find(given: Option<&Path>, folder: &Path, offers: Offers) -> anyhow::Result<Self> {
        if let Some(socket) = given {
            return Ok(Self { socket: std::path::absolute(socket)?, offers, _own: None });
        }
        let options: &[&str] = if offers == Offers::AtOnce { &WHOLE_RINGS } else { &[] };
        let own = Broker::start_with(folder, options)?;
        Ok(Self { socket: own.socket().to_owned(), offers, _own: Some(own) })
    }

    /// `None`: no broker answers.
    pub fn totals(&self) -> Option<Totals> {
        self.status().ok().map(|status| Totals::of(&status))
    }

    /// What was moved since `before`, once the connections of the run are closed.
    pub fn moved_since(&self, before: Option<Totals>) -> Option<Totals> {
        before?.until_closed(|| self.status()).ok()
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// How it proves that two ends belong together.
    pub fn proof(&self) -> String {
        self.status().map_or_else(|trouble| trouble.to_string(), |status| status.broker.proof)
    }

    /// What stands before a program whose connections get rings.
    pub fn words(&self, yasmin: &Path) -> Vec<String> {
        let (yasmin, socket) = (yasmin.display().to_string(), self.socket.display().to_string());
        let at_once: &[&str] = match self.offers {
            Offers::AtOnce => &["env", AT_ONCE[0], AT_ONCE[1]],
            Offers::Default => &[],
        };
        let run = [&yasmin, "run", "--no-broker", "--socket", &socket, "--"];
        at_once.iter().chain(&run).map(|word| (*word).to_owned()).collect()
    }

    fn status(&self) -> Result<Status, Trouble> {
        Client::connect(&self.socket)?.status()
    }
}
