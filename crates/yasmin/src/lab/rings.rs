//! The broker of the lab, its own or one that was given, and what it counted.

use std::path::{Path, PathBuf};

use yasmin_control::status::Status;

use crate::broker::Client;
use crate::broker::client::Trouble;
use crate::demo::broker::{Broker, Totals};

/// See libyasmin(7).
const AT_ONCE: [&str; 2] = ["YASMIN_PROMOTE_MESSAGES=0", "YASMIN_PROMOTE_WAIT_MS=2000"];

/// See yasmind(8). Rings that grow as they prove too small would still be growing when a kernel
/// with a few long messages is over: the matrix product sends three.
const WHOLE_RINGS: [&str; 2] = ["--first-class", "8"];

pub struct Rings {
    socket: PathBuf,
    /// Gone with the value.
    _own: Option<Broker>,
}

impl Rings {
    /// Starts a broker in `folder`, unless `given` says where one listens.
    pub fn find(given: Option<&Path>, folder: &Path) -> anyhow::Result<Self> {
        if let Some(socket) = given {
            return Ok(Self { socket: std::path::absolute(socket)?, _own: None });
        }
        let own = Broker::start_with(folder, &WHOLE_RINGS)?;
        Ok(Self { socket: own.socket().to_owned(), _own: Some(own) })
    }

    /// `None`: no broker answers.
    pub fn totals(&self) -> Option<Totals> {
        self.status().ok().map(|status| Totals::of(&status))
    }

    /// What was moved since `before`, once the connections of the run are closed.
    pub fn moved_since(&self, before: Option<Totals>) -> Option<Totals> {
        before?.until_closed(|| self.status()).ok()
    }

    /// How it proves that two ends belong together.
    pub fn proof(&self) -> String {
        self.status().map_or_else(|trouble| trouble.to_string(), |status| status.broker.proof)
    }

    /// What stands before a program whose connections get rings. From their first byte on: small
    /// kernels would be over before a connection has proven busy, and show what TCP costs.
    pub fn words(&self, yasmin: &Path) -> Vec<String> {
        let (yasmin, socket) = (yasmin.display().to_string(), self.socket.display().to_string());
        ["env", AT_ONCE[0], AT_ONCE[1], &yasmin, "run", "--no-broker", "--socket", &socket, "--"]
            .map(str::to_owned)
            .to_vec()
    }

    fn status(&self) -> Result<Status, Trouble> {
        Client::connect(&self.socket)?.status()
    }
}
