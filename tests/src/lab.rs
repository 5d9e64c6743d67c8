//! One broker, two sites, and the environment that peers run in.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::netns::{self, Net, Pair, Site};
use crate::process::{Process, Registry, eventually};
use crate::status::{self, Bytes, End, Status};

/// What the peers run on: see the crate's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Ring,
    Tcp,
    Broken,
}

impl Mode {
    pub fn from_env() -> Self {
        match std::env::var("YASMIN_TEST_MODE").as_deref() {
            Err(_) | Ok("ring") => Self::Ring,
            Ok("tcp") => Self::Tcp,
            Ok("broken") => Self::Broken,
            Ok(other) => panic!("YASMIN_TEST_MODE={other}: use ring, tcp or broken"),
        }
    }
}

/// The library's settings; what is `None` keeps its default.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    /// How long a wait spins before it sleeps.
    pub spin_us: Option<u32>,
    /// Percent of one CPU that its waits may spin.
    pub spin_share: Option<u32>,
    /// Messages until a connection is offered; 0 offers at connect and accept.
    pub promote_messages: Option<u32>,
    /// How long the call that offers waits for the channel.
    pub promote_wait_ms: Option<u32>,
    /// How often, in a thousand steps, the library does something unexpected; with a seed.
    pub chaos: Option<(u32, u64)>,
    /// Size class of the first rings, for the broker of a lab that is built with it.
    pub first_class: Option<u8>,
    /// How long the broker keeps what is unread of a connection that is passed on; likewise.
    pub passed_on_for_s: Option<u16>,
    /// How long an offer waits for the other end's; likewise.
    pub offers_for_s: Option<u16>,
    /// Memory for all channels; likewise.
    pub memory_limit_bytes: Option<u32>,
}

impl Knobs {
    /// A channel from the first byte on.
    pub const fn at_once() -> Self {
        Self {
            spin_us: None,
            spin_share: None,
            promote_messages: Some(0),
            promote_wait_ms: Some(2000),
            chaos: None,
            first_class: None,
            passed_on_for_s: None,
            offers_for_s: None,
            memory_limit_bytes: None,
        }
    }

    pub const fn spin(mut self, spin_us: u32) -> Self {
        self.spin_us = Some(spin_us);
        self
    }

    pub const fn chaos(mut self, permille: u32, seed: u64) -> Self {
        self.chaos = Some((permille, seed));
        self
    }

    pub const fn first_class(mut self, class: u8) -> Self {
        self.first_class = Some(class);
        self
    }

    pub const fn passed_on_for(mut self, seconds: u16) -> Self {
        self.passed_on_for_s = Some(seconds);
        self
    }

    pub const fn offers_for(mut self, seconds: u16) -> Self {
        self.offers_for_s = Some(seconds);
        self
    }

    pub const fn memory_limit(mut self, bytes: u32) -> Self {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    fn broker_arguments(&self) -> Vec<String> {
        let class = self.first_class.map(|class| format!("--first-class={class}"));
        let kept = self.passed_on_for_s.map(|seconds| format!("--passed-on-for={seconds}"));
        let waits = self.offers_for_s.map(|seconds| format!("--offers-for={seconds}"));
        let limits = ["--memory-limit", "--user-limit"];
        let limits = limits.map(|name| Some(format!("{name}={}", self.memory_limit_bytes?)));
        class.into_iter().chain(kept).chain(waits).chain(limits.into_iter().flatten()).collect()
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut out = Vec::new();
        let mut set = |key, value: Option<u64>| {
            if let Some(value) = value {
                out.push((key, value.to_string()));
            }
        };
        set("YASMIN_SPIN_US", self.spin_us.map(u64::from));
        set("YASMIN_SPIN_SHARE", self.spin_share.map(u64::from));
        set("YASMIN_PROMOTE_MESSAGES", self.promote_messages.map(u64::from));
        set("YASMIN_PROMOTE_WAIT_MS", self.promote_wait_ms.map(u64::from));
        set("YASMIN_CHAOS", self.chaos.map(|(permille, _)| u64::from(permille)));
        set("YASMIN_CHAOS_SEED", self.chaos.map(|(_, seed)| seed));
        out
    }
}

/// A directory that goes away with its owner.
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    #[track_caller]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, nth) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("yasmin-test-{pid}-{nth}"));
        fs::create_dir_all(&path)
            .unwrap_or_else(|error| panic!("{} cannot be made: {error}", path.display()));
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Where `make build` leaves the programs, or `YASMIN_BIN_DIR`.
#[track_caller]
pub fn artefact(name: &str) -> PathBuf {
    let folder = std::env::var_os("YASMIN_BIN_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release"),
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing: run `make build`, or say with YASMIN_BIN_DIR where it is",
        path.display()
    );
    path.canonicalize().unwrap_or(path)
}

/// A private broker with its socket.
pub struct BrokerProcess {
    process: Process,
    socket: PathBuf,
}

impl BrokerProcess {
    /// Starts one at `socket` and waits until it answers.
    #[track_caller]
    pub fn start(socket: &Path, registry: &Registry) -> Self {
        Self::start_with(socket, &[], registry)
    }

    #[track_caller]
    pub fn start_with(socket: &Path, arguments: &[String], registry: &Registry) -> Self {
        let mut command = Command::new(artefact("yasmind"));
        command.arg("--socket").arg(socket).args(arguments);
        let mut process = Process::start("yasmind", &mut command, registry);
        let broker = eventually(
            "a broker that answers",
            || match status::ask(socket) {
                Ok(status) => Some(Some(status.broker.pid)),
                Err(_) if process.has_ended() => Some(None),
                Err(_) => None,
            },
            || format!("last answer: {:?}", status::ask(socket).map(|_| ())),
        );
        assert_eq!(broker, Some(process.pid()), "the broker ended:\n{}", process.output());
        Self { process, socket: socket.to_owned() }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Stops it, or has it go on.
    pub fn freeze(&self, frozen: bool) {
        self.process.freeze(frozen);
    }

    /// As after a crash: the socket's file stays.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    pub const fn process(&self) -> &Process {
        &self.process
    }

    #[track_caller]
    pub fn status(&self) -> Status {
        match status::ask(&self.socket) {
            Ok(status) => status,
            Err(error) => panic!("no status from the broker: {error}\n{}", self.process.output()),
        }
    }
}

/// A broker and two sites. Field order is drop order: processes go before their namespaces.
pub struct Lab {
    pub mode: Mode,
    pub broker: Option<BrokerProcess>,
    /// Where the two peers run; the first one listens, by custom.
    pub a: Site,
    pub b: Site,
    pub registry: Registry,
    pub folder: Folder,
    /// In force instead of the library where it is `false`, whatever the mode.
    accelerated: bool,
    knobs: Knobs,
    pair: Option<Pair>,
}

impl Lab {
    /// A lab in the mode of the environment.
    #[track_caller]
    pub fn new(net: Net, knobs: Knobs) -> Self {
        Self::build(net, knobs, Mode::from_env(), true)
    }

    /// A lab whose peers are plain TCP programs, to compare with.
    #[track_caller]
    pub fn plain(net: Net) -> Self {
        Self::build(net, Knobs::default(), Mode::Tcp, false)
    }

    #[track_caller]
    fn build(net: Net, knobs: Knobs, mode: Mode, accelerated: bool) -> Self {
        let folder = Folder::new();
        let registry = Registry::default();
        let broker = (accelerated && mode != Mode::Tcp).then(|| {
            let socket = folder.path().join("broker.sock");
            BrokerProcess::start_with(&socket, &knobs.broker_arguments(), &registry)
        });
        let pair = (net == Net::Netns && netns::allowed())
            .then(|| Pair::new().unwrap_or_else(|error| panic!("namespaces: {error}")));
        let [a, b] = match &pair {
            Some(pair) => pair.sites(),
            None => [Site::loopback(), Site::loopback()],
        };
        Self { mode, broker, a, b, registry, folder, accelerated, knobs, pair }
    }

    /// Starts a broker again where the first one was.
    #[track_caller]
    pub fn restart_broker(&mut self) {
        let arguments = self.knobs.broker_arguments();
        self.broker = Some(BrokerProcess::start_with(&self.socket(), &arguments, &self.registry));
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("broker.sock")
    }

    /// Does the library do only what is expected?
    pub const fn is_calm(&self) -> bool {
        self.knobs.chaos.is_none()
    }

    /// Replaces the settings of peers that start from now on.
    pub fn set_knobs(&mut self, knobs: Knobs) {
        self.knobs = knobs;
    }

    /// What peers get in their environment.
    #[track_caller]
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        if !self.accelerated || self.mode != Mode::Ring {
            return Vec::new();
        }
        let mut out = self.knobs.environment();
        out.push(("YASMIN_SOCKET", self.socket().display().to_string()));
        out.push(("LD_PRELOAD", artefact("libyasmin.so").display().to_string()));
        out
    }

    /// A command that runs `program` at `site` as the mode says.
    #[track_caller]
    pub fn command(&self, site: &Site, program: &Path) -> Command {
        site.command(program, self.environment())
    }

    #[track_caller]
    pub fn start(&self, name: &str, site: &Site, program: &Path, arguments: &[String]) -> Process {
        Process::start(name, self.command(site, program).args(arguments), &self.registry)
    }

    /// What stands before a command as users write it: `yasmin run` and its options, with
    /// `yasmin` and the library in `folder`; nothing where the mode is plain TCP.
    pub fn run_words(&self, folder: &Path) -> Vec<String> {
        if !self.accelerated || self.mode != Mode::Ring {
            return Vec::new();
        }
        let (yasmin, socket) = (folder.join("yasmin"), self.socket());
        let run = [yasmin.display().to_string(), "run".to_owned(), "--no-broker".to_owned()];
        let broker = ["--socket".to_owned(), socket.display().to_string(), "--".to_owned()];
        [run, broker].concat()
    }

    /// `program` as users start it, with the library's settings.
    pub fn run_command(&self, program: &Path) -> Command {
        let yasmin = artefact("yasmin");
        let mut words = self.run_words(yasmin.parent().expect("it is in a folder"));
        words.push(program.display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).envs(self.settings());
        command
    }

    /// The library's settings alone, for commands that begin with `run_words`.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        if self.accelerated { self.knobs.environment() } else { Vec::new() }
    }

    /// Bytes that the interfaces of the lab's namespaces have received, headers included;
    /// `None` where it has no namespaces of its own.
    pub fn wire_bytes(&self) -> Option<u64> {
        self.pair.as_ref().map(Pair::wire_bytes)
    }

    /// At most so many bytes a second between the sites; `None`: no limit. Without namespaces of
    /// their own nothing happens.
    ///
    /// # Errors
    /// The command that failed, and what it said.
    pub fn limit(&self, bytes_per_s: Option<u32>) -> Result<(), String> {
        self.pair.as_ref().map_or(Ok(()), |pair| pair.limit(bytes_per_s))
    }

    /// Ends every process that is left in the lab's namespaces.
    pub fn clear_namespaces(&self) {
        if let Some(pair) = &self.pair {
            pair.kill_processes();
        }
    }

    /// Are proofs asked for?
    pub fn proves(&self) -> bool {
        self.accelerated && self.mode != Mode::Tcp
    }

    /// The broker's status; `None` where there is no broker.
    #[track_caller]
    pub fn status(&self) -> Option<Status> {
        self.broker.as_ref().map(BrokerProcess::status)
    }

    /// What the connections of process `pid` carried so far.
    #[track_caller]
    pub fn bytes_of(&self, pid: u32) -> Bytes {
        self.status()
            .map(|status| status::bytes_of(&status, |end: &End| end.pid == pid))
            .unwrap_or_default()
    }

    /// What all connections carried so far, closed ones included.
    #[track_caller]
    pub fn bytes_in_all(&self) -> Bytes {
        self.status().map(|status| status::bytes_in_all(&status)).unwrap_or_default()
    }

    /// Whether of `total_bytes`, which `carried` belongs to, so many percent went by ring, and some
    /// at all; true where nothing is to be proven.
    pub fn is_by_ring(&self, carried: Bytes, total_bytes: u64, percent: u64) -> bool {
        let is_enough = carried.ring > 0 && carried.ring * 100 >= total_bytes * percent;
        is_enough || percent == 0 || !self.proves()
    }

    /// Asserts that of `total_bytes`, which `carried` belongs to, so many percent went by ring.
    #[track_caller]
    pub fn assert_by_ring(&self, carried: Bytes, total_bytes: u64, percent: u64) {
        if self.is_by_ring(carried, total_bytes, percent) {
            return;
        }
        let reasons: Vec<_> = self
            .status()
            .map(|status| status.connections.into_iter().map(|one| one.reason).collect())
            .unwrap_or_default();
        panic!(
            "only {} of {total_bytes} bytes by ring, {} by TCP with a channel; {percent} % were \
             asked for; reasons: {reasons:?}",
            carried.ring, carried.tcp,
        );
    }

    /// Runs `load` until so many percent of its bytes went by ring, so often at most: how much does depends on who else
    /// wants the CPUs. It is told which time this is, from 0 on, and says what was carried, and how many bytes there were.
    #[track_caller]
    pub fn assert_by_ring_of(
        &self,
        times: u64,
        percent: u64,
        mut load: impl FnMut(u64) -> (Bytes, u64),
    ) {
        for time in 0..times {
            let (carried, total_bytes) = load(time);
            if time + 1 == times || self.is_by_ring(carried, total_bytes, percent) {
                return self.assert_by_ring(carried, total_bytes, percent);
            }
        }
    }

    /// Asserts that the ring was used at all, where nobody can say how much.
    #[track_caller]
    pub fn assert_some_by_ring(&self, ring_bytes: u64) {
        assert!(!self.proves() || ring_bytes > 0, "no bytes by ring: {:#?}", self.status());
    }
}
