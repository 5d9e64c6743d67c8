//! What the loop decides, apart from all that it asks and sets: what was seen goes in, decisions
//! come out. The same when it runs and when a log is replayed.

use std::collections::{BTreeMap, BTreeSet};

use yasmin_placement::{Error, Plan, Policy, policy};
use yasmin_topology::{CpuId, Machine};

use crate::discover::{self, Found};
use crate::function::Function;
use crate::overrides::Overrides;
use crate::problem::Problem;
use crate::rate::Edge;
use crate::record::{Decision, Measured, Move, Settings};
use crate::shift::{Detector, Verdict};

/// Seconds after a move until what came of it is told.
const MEASURE_AFTER_S: f64 = 10.0;

#[derive(Debug, PartialEq)]
pub enum Outcome {
    Nothing,
    /// Look again before the period is over.
    LookSoon,
    /// There has to be a plan, and why: call [`Engine::plan`].
    Plan(String),
}

pub struct Engine {
    policy: Box<dyn Policy + Send + Sync>,
    settings: Settings,
    overrides: Overrides,
    detector: Detector,
    machine: Machine,
    functions: Vec<Function>,
    /// Functions that were given a CPU, or came with one.
    pinned: BTreeMap<String, CpuId>,
    /// Why there has to be a plan, whatever the traffic does.
    due: Option<String>,
    /// Something that is due was seen once.
    seen_due: bool,
    chains: Vec<Found>,
    recent: Mean,
    waiting: Option<Waiting>,
}

/// What traffic was, over some looks.
#[derive(Clone, Copy, Default)]
struct Mean {
    rate: f64,
    dropped: f64,
}

impl Mean {
    fn of(edges: &[Edge]) -> Self {
        // The sum of nothing is -0.
        let sum = |of: fn(&Edge) -> f64| edges.iter().map(of).fold(0.0, |sum, one| sum + one);
        Self { rate: sum(|edge| edge.rate), dropped: sum(|edge| edge.dropped) }
    }
}

struct Waiting {
    since_s: f64,
    before: Mean,
    unmoved: BTreeMap<String, CpuId>,
}

impl Engine {
    pub fn new(settings: Settings, overrides: Overrides, machine: Machine) -> Result<Self, Error> {
        Ok(Self {
            policy: policy(&settings.policy, &Default::default())?,
            detector: Detector::new(settings.sensitivity),
            settings,
            overrides,
            machine,
            functions: Vec::new(),
            pinned: BTreeMap::new(),
            due: None,
            seen_due: false,
            chains: Vec::new(),
            recent: Mean::default(),
            waiting: None,
        })
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// As of the last plan, or look where there was none yet.
    pub fn chains(&self) -> &[Found] {
        &self.chains
    }

    pub fn pinned(&self) -> &BTreeMap<String, CpuId> {
        &self.pinned
    }

    /// CPUs came or went. A function whose CPU went has none.
    pub fn set_machine(&mut self, machine: Machine) {
        let gone: Vec<String> = self
            .pinned
            .iter()
            .filter(|(_, cpu)| machine.cpu(**cpu).is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.pinned.remove(&name);
        }
        let cpus = |machine: &Machine| machine.cpus.iter().map(|cpu| cpu.id).collect::<Vec<_>>();
        if cpus(&machine) != cpus(&self.machine) {
            let (now, before) = (machine.cpus.len(), self.machine.cpus.len());
            self.require(format!("{now} CPUs are online, were {before}"));
        }
        self.machine = machine;
    }

    /// Functions came or went. `pinned` are those that have one CPU by somebody else's will.
    pub fn set_functions(&mut self, functions: Vec<Function>, pinned: BTreeMap<String, CpuId>) {
        let now: BTreeSet<&str> = functions.iter().map(|one| one.name.as_str()).collect();
        let before: BTreeSet<&str> = self.functions.iter().map(|one| one.name.as_str()).collect();
        let lost: Vec<&str> = before.difference(&now).copied().collect();
        let new: Vec<&str> = now.difference(&before).copied().collect();
        let why = match (new.as_slice(), lost.as_slice()) {
            ([], []) => None,
            ([one], []) => Some(format!("{one} came")),
            ([], [one]) => Some(format!("{one} went")),
            (new, []) => Some(format!("{} functions came", new.len())),
            ([], lost) => Some(format!("{} functions went", lost.len())),
            (new, lost) => Some(format!("{} functions came and {} went", new.len(), lost.len())),
        };
        self.pinned.retain(|name, _| now.contains(name.as_str()));
        if let Some(why) = why {
            self.require(why);
        }
        for (name, cpu) in pinned {
            self.pinned.entry(name).or_insert(cpu);
        }
        self.functions = functions;
    }

    pub fn require(&mut self, why: String) {
        self.due.get_or_insert(why);
        self.seen_due = false;
    }

    /// Edges between the functions, at a moment.
    pub fn look(&mut self, at_s: f64, edges: &[Edge]) -> Outcome {
        let verdict = self.detector.look(at_s, edges);
        if self.chains.is_empty() {
            self.chains = self.find_chains(edges);
        }
        let why = match (verdict, &self.due) {
            (Verdict::Shifted { edge, before, now }, _) => format!(
                "traffic shifted, {edge} from {:.0} to {:.0} % of all",
                before * 100.0,
                now * 100.0
            ),
            // New functions begin their traffic together: once more, then it counts.
            (_, Some(_)) if !self.seen_due => {
                self.seen_due = true;
                return Outcome::LookSoon;
            }
            (_, Some(why)) => why.clone(),
            (Verdict::Unsettled, None) => return Outcome::LookSoon,
            (Verdict::Steady, None) => {
                self.recent = Mean::of(edges);
                return Outcome::Nothing;
            }
        };
        self.due = None;
        self.seen_due = false;
        self.detector.planned(at_s);
        if self.functions.is_empty() { Outcome::Nothing } else { Outcome::Plan(why) }
    }

    pub fn find_chains(&self, edges: &[Edge]) -> Vec<Found> {
        let (left, mut chains) = self.overrides.apply_to_edges(&self.functions, edges);
        let listed: Vec<String> = chains.iter().flat_map(|chain| chain.functions.clone()).collect();
        let rest = self.functions.iter().map(|one| one.name.as_str());
        let rest = rest.filter(|name| !listed.iter().any(|known| known == name));
        chains.extend(discover::chains(&left, rest));
        chains
    }

    fn problem(&self) -> Result<Problem, Error> {
        let Settings { nic, smt, .. } = self.settings;
        Problem::new(&self.machine, &self.functions, &self.chains, &self.pinned, nic, smt)
    }

    /// A plan, with moves or, where all is well as it is, without. `places`: where functions run
    /// that are not pinned, if that is known.
    pub fn plan(
        &mut self,
        at_s: f64,
        why: String,
        edges: &[Edge],
        mut places: BTreeMap<String, CpuId>,
    ) -> Result<Decision, Error> {
        let before = std::mem::replace(&mut self.recent, Mean::of(edges));
        self.chains = self.find_chains(edges);
        let problem = self.problem()?;
        places.extend(self.pinned.iter().map(|(name, cpu)| (name.clone(), *cpu)));
        let present = problem.plan_of(&places, &self.machine);
        let current = Some(&problem.current).filter(|plan| !plan.seats.is_empty());
        let plan = self.policy.plan(&problem.host, &problem.chains, current)?;
        let moves: Vec<Move> = plan
            .moves_from(&problem.current)
            .into_iter()
            .map(|one| {
                let from = present.seat(one.function);
                Move {
                    function: problem.name(one.function).to_owned(),
                    from: from.map(|seat| seat.cpu),
                    from_node: from.map(|seat| seat.node),
                    to: one.to.cpu,
                    to_node: one.to.node,
                }
            })
            .collect();
        let names = |chain: &Found| {
            let mut parts: Vec<&str> = chain.entry.iter().map(String::as_str).collect();
            parts.extend(chain.functions.iter().map(String::as_str));
            parts.extend(chain.exit.iter().map(String::as_str));
            parts.join(" > ")
        };
        let decision = Decision {
            at_s,
            why,
            cost_before: cost(&problem, &present),
            cost_after: cost(&problem, &plan),
            shared: plan.shared.iter().map(|id| problem.name(*id).to_owned()).collect(),
            chains: self.chains.iter().map(names).collect(),
            moves,
        };
        if !decision.moves.is_empty() {
            self.waiting = Some(Waiting { since_s: at_s, before, unmoved: places });
        }
        Ok(decision)
    }

    /// The moves of a decision were made.
    pub fn applied(&mut self, decision: &Decision) {
        for one in &decision.moves {
            self.pinned.insert(one.function.clone(), one.to);
        }
    }

    /// They were not, and everything is as it was.
    pub fn failed(&mut self) {
        self.waiting = None;
    }

    /// What came of the last moves, some time after them.
    pub fn measure(&mut self, at_s: f64, edges: &[Edge]) -> Option<Measured> {
        let waiting = self.waiting.take_if(|waiting| at_s - waiting.since_s >= MEASURE_AFTER_S)?;
        self.chains = self.find_chains(edges);
        let problem = self.problem().ok()?;
        let unmoved = problem.plan_of(&waiting.unmoved, &self.machine);
        let present = problem.plan_of(&self.pinned, &self.machine);
        let now = Mean::of(edges);
        Some(Measured {
            at_s,
            cost_unmoved: cost(&problem, &unmoved),
            cost: cost(&problem, &present),
            rate_before: waiting.before.rate,
            rate_after: now.rate,
            dropped_before: waiting.before.dropped,
            dropped_after: now.dropped,
        })
    }
}

impl Engine {
    /// Traffic times distance of this traffic, once functions are placed.
    pub fn present_cost(&self, edges: &[Edge]) -> Option<f64> {
        if self.pinned.is_empty() {
            return None;
        }
        let chains = self.find_chains(edges);
        let Settings { nic, smt, .. } = self.settings;
        let problem =
            Problem::new(&self.machine, &self.functions, &chains, &self.pinned, nic, smt).ok()?;
        Some(cost(&problem, &problem.plan_of(&self.pinned, &self.machine)))
    }
}

/// Traffic times distance over all hops; no price for moves.
fn cost(problem: &Problem, plan: &Plan) -> f64 {
    let objective = yasmin_placement::Objective::default();
    let cost = objective.cost(&problem.host, &problem.chains, plan, None);
    cost.map_or(0.0, |cost| cost.hops)
}
