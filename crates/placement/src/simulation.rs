//! The source's experiment, in the model: services of 3, 5 and 7 functions on two nodes with 8
//! free CPUs each, traffic that changes every 10 seconds, several ways to begin.

use serde::{Deserialize, Serialize};
use yasmin_topology::NodeId;

use crate::dice::Dice;
use crate::model::{LOCAL_NS, Model, REMOTE_NS};
use crate::{Chain, Error, FunctionId, Host, Plan, Policy, Seat, Traffic};

/// Functions of each service.
pub const SERVICES: [u32; 3] = [3, 5, 7];
/// A Gbit/s in bytes a second.
pub const GBIT: f64 = 1.25e8;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    pub seed: u64,
    pub seconds: u32,
    /// Traffic changes that often.
    pub change_s: u32,
    /// Counters are wrong by so much at most, as a part.
    pub noise: f64,
    /// How long a function stands still when it is moved.
    pub pause_s: f64,
}

impl Default for Experiment {
    fn default() -> Self {
        Self { seed: 1, seconds: 1800, change_s: 10, noise: 0.02, pause_s: 0.001 }
    }
}

/// Where functions are at the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Start {
    /// Each service on one node.
    Whole,
    /// The first half of each on one node, the second on the other.
    HalfHalf,
    /// Neighbours never on one node.
    Alternating,
}

/// Who has traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One service at a time; another one, by lot, with each change.
    One,
    All,
}

impl Start {
    pub const ALL: [Self; 3] = [Self::Whole, Self::HalfHalf, Self::Alternating];

    pub fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::HalfHalf => "half-half",
            Self::Alternating => "alternating",
        }
    }
}

impl Pattern {
    pub const ALL: [Self; 2] = [Self::One, Self::All];

    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::All => "all",
        }
    }
}

/// What one policy made of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub policy: String,
    pub start: Start,
    pub pattern: Pattern,
    /// Over all packets that passed.
    pub mean_latency_us: f64,
    /// Standard deviation over time.
    pub spread_us: f64,
    /// Part of all packets that were lost.
    pub dropped: f64,
    /// Functions moved in all, and seconds in which any was.
    pub moves: u64,
    pub replans: u64,
    /// For each second the mean latency of its packets.
    pub series_us: Vec<f64>,
}

/// The source's two nodes, distances in nanoseconds.
pub fn source_host() -> Host {
    let mut host = Host::with_free_cpus(&[8, 8]);
    for (from, row) in host.distance.iter_mut().enumerate() {
        for (to, distance) in row.iter_mut().enumerate() {
            *distance = if from == to { LOCAL_NS } else { REMOTE_NS };
        }
    }
    host
}

/// The three services without traffic.
pub fn source_chains() -> Vec<Chain> {
    let mut next = 1..;
    let chain = |length: &u32| {
        let ids: Vec<FunctionId> = next.by_ref().take(*length as usize).map(FunctionId).collect();
        Chain::new(&format!("{length} functions"), &ids, Traffic::bytes_s(0.0))
    };
    SERVICES.iter().map(chain).collect()
}

/// Seats on the nodes of `host` by their number.
pub fn seats_at(host: &Host, places: impl IntoIterator<Item = (FunctionId, usize)>) -> Plan {
    let mut next = vec![0; host.nodes.len()];
    let mut plan = Plan::default();
    for (id, place) in places {
        let node = &host.nodes[place];
        if let Some(cpu) = node.free.get(next[place]) {
            plan.seats.insert(id, Seat { cpu: *cpu, node: node.id });
            next[place] += 1;
        }
    }
    plan
}

pub fn start_plan(host: &Host, chains: &[Chain], start: Start) -> Plan {
    let mut count = 0;
    let mut places = Vec::new();
    for (service, chain) in chains.iter().enumerate() {
        let half = chain.functions.len().div_ceil(2);
        for (at, id) in chain.functions.iter().enumerate() {
            let place = match start {
                // The longest has a node to itself.
                Start::Whole => usize::from(service + 1 == chains.len()),
                // Halves of 2, 3 and 4: turned round for one service, or the first node is full.
                Start::HalfHalf => usize::from((at >= half) != (service == 1)),
                Start::Alternating => count % 2,
            };
            count += 1;
            places.push((*id, place));
        }
    }
    seats_at(host, places)
}

/// Traffic of each service in each period, in bytes a second.
fn script(experiment: &Experiment, pattern: Pattern, services: usize) -> Vec<Vec<f64>> {
    let mut dice = Dice(experiment.seed ^ 0x7a11);
    let periods = experiment.seconds.div_ceil(experiment.change_s.max(1));
    let mut rate = || GBIT * (1 + dice.below(5)) as f64;
    let mut rates: Vec<Vec<f64>> =
        (0..periods).map(|_| (0..services).map(|_| rate()).collect()).collect();
    if pattern == Pattern::One {
        for rates in &mut rates {
            let only = dice.below(services);
            for (service, rate) in rates.iter_mut().enumerate() {
                *rate = if service == only { *rate } else { 0.0 };
            }
        }
    }
    rates
}

impl Experiment {
    /// One run. Each second the policy sees what the counters said of the last one. `tick` is
    /// told after each second.
    pub fn run(
        &self,
        policy: &dyn Policy,
        start: Start,
        pattern: Pattern,
        mut tick: impl FnMut(),
    ) -> Result<Outcome, Error> {
        let host = source_host();
        let model = Model::nanoseconds();
        let mut chains = source_chains();
        let script = script(self, pattern, chains.len());
        let mut noise = Dice(self.seed ^ 0x0015e);
        let mut plan = start_plan(&host, &chains, start);
        let mut sums = Sums::default();
        let mut seen: Option<Vec<Chain>> = None;
        for second in 0..self.seconds {
            for (chain, rate) in
                chains.iter_mut().zip(&script[(second / self.change_s.max(1)) as usize])
            {
                chain.traffic = Traffic::bytes_s(*rate);
            }
            let mut paused = vec![0.0; chains.len()];
            if let Some(seen) = &seen {
                let next = policy.plan(&host, seen, Some(&plan))?;
                let moves = next.moves_from(&plan);
                for one in &moves {
                    for chain in Model::chains_of(&chains, one.function) {
                        paused[chain] += self.pause_s;
                    }
                }
                sums.moves += moves.len() as u64;
                sums.replans += u64::from(!moves.is_empty());
                plan = next;
            }
            let mut fares = model.fares(&host, &chains, &plan)?;
            for ((fare, chain), pause_s) in fares.iter_mut().zip(&chains).zip(paused) {
                let pause = model.pause(chain, pause_s);
                fare.latency_ns += pause.latency_ns;
                fare.passed *= pause.passed;
            }
            sums.add(&chains, &fares);
            let mut counted = chains.clone();
            for chain in &mut counted {
                chain.traffic.rate *= 1.0 + self.noise * (2.0 * noise.fraction() - 1.0);
            }
            seen = Some(counted);
            tick();
        }
        Ok(sums.outcome(policy.name(), start, pattern))
    }
}

#[derive(Default)]
struct Sums {
    offered: f64,
    passed: f64,
    latency: f64,
    series: Vec<f64>,
    moves: u64,
    replans: u64,
}

impl Sums {
    fn add(&mut self, chains: &[Chain], fares: &[crate::Fare]) {
        let (mut passed, mut latency) = (0.0, 0.0);
        for (chain, fare) in chains.iter().zip(fares) {
            self.offered += chain.traffic.rate;
            passed += chain.traffic.rate * fare.passed;
            latency += chain.traffic.rate * fare.passed * fare.latency_ns / 1e3;
        }
        self.passed += passed;
        self.latency += latency;
        self.series.push(if passed > 0.0 { latency / passed } else { 0.0 });
    }

    fn outcome(self, policy: &str, start: Start, pattern: Pattern) -> Outcome {
        let seconds = self.series.len().max(1) as f64;
        let mean = self.series.iter().sum::<f64>() / seconds;
        let square = |us: &f64| (us - mean).powi(2);
        Outcome {
            policy: policy.to_owned(),
            start,
            pattern,
            mean_latency_us: if self.passed > 0.0 { self.latency / self.passed } else { 0.0 },
            spread_us: (self.series.iter().map(square).sum::<f64>() / seconds).sqrt(),
            dropped: if self.offered > 0.0 { 1.0 - self.passed / self.offered } else { 0.0 },
            moves: self.moves,
            replans: self.replans,
            series_us: self.series,
        }
    }
}

/// How one service fares alone, at a steady rate: all on the card's node, and with every hop
/// remote.
pub fn contrast(length: u32, rate_gbit_s: f64) -> Result<(crate::Fare, crate::Fare), Error> {
    let host = source_host();
    let model = Model::nanoseconds();
    let ids: Vec<FunctionId> = (1..=length).map(FunctionId).collect();
    let chains = [Chain::new("service", &ids, Traffic::bytes_s(rate_gbit_s * GBIT))];
    let fare = |place: &dyn Fn(usize) -> usize| -> Result<crate::Fare, Error> {
        let plan = seats_at(&host, ids.iter().enumerate().map(|(at, id)| (*id, place(at))));
        Ok(model.fares(&host, &chains, &plan)?[0])
    };
    debug_assert_eq!(host.nic, NodeId(0));
    Ok((fare(&|_| 0)?, fare(&|at| 1 - at % 2)?))
}
