//! The loop: look, decide, move, tell. It sleeps nowhere; who drives it waits as long as it says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant, SystemTime};

use yasmin_topology::{CpuId, Machine, NodeId, pinned_threads};

use crate::actuator::{self, cgroup};
use crate::apply::{self, Order};
use crate::engine::{Engine, Outcome};
use crate::function::{Function, Target};
use crate::journal::Journal;
use crate::observer::Observer;
use crate::overrides::Overrides;
use crate::rate::Edge;
use crate::record::{Decision, EdgeName, Record, Settings, VERSION};
use crate::source::Source;

/// How soon is soon: rates over so short a time are rates still.
const SOON: Duration = Duration::from_millis(100);
/// After moves that failed, the same is not tried again before.
const RETRY_AFTER_S: f64 = 30.0;
const ONLINE: &str = "/sys/devices/system/cpu/online";

#[derive(Clone, Debug)]
pub struct Options {
    pub settings: Settings,
    pub period: Duration,
    /// Decide, and move nothing.
    pub dry_run: bool,
    /// Memory follows.
    pub memory: bool,
    /// CPUs that functions may be given, whoever else is pinned there; by default those that are
    /// free.
    pub cpus: Option<BTreeSet<CpuId>>,
}

/// What there is to tell, apart from the records.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Record(Record),
    /// For people.
    Note(String),
}

pub struct Watch {
    options: Options,
    overrides: Overrides,
    observer: Observer,
    engine: Engine,
    journal: Option<Journal>,
    began: Instant,
    online: String,
    functions: Vec<Function>,
    edge_names: Vec<EdgeName>,
    machine_told: bool,
    retry_s: Option<f64>,
    pub counts: Counts,
}

/// Totals since the start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub looks: u64,
    pub plans: u64,
    pub moves: u64,
    pub failures: u64,
    pub resets: u64,
    pub apply_s: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error(transparent)]
    Topology(#[from] yasmin_topology::Error),
    #[error(transparent)]
    Placement(#[from] yasmin_placement::Error),
}

impl Watch {
    /// Without a journal nothing is ever moved.
    pub fn new(
        options: Options,
        overrides: Overrides,
        sources: Vec<Box<dyn Source + Send>>,
        journal: Option<Journal>,
    ) -> Result<Self, Trouble> {
        let machine = machine(&BTreeSet::new(), options.cpus.as_ref())?;
        let engine_overrides = overrides.clone();
        Ok(Self {
            engine: Engine::new(options.settings.clone(), engine_overrides, machine)?,
            options,
            overrides,
            observer: Observer::new(sources),
            journal,
            began: Instant::now(),
            online: online(),
            functions: Vec::new(),
            edge_names: Vec::new(),
            machine_told: false,
            retry_s: None,
            counts: Counts::default(),
        })
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn edges(&self) -> &[Edge] {
        self.observer.edges()
    }

    pub fn at_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    pub fn start(&self) -> Record {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let settings = self.options.settings.clone();
        Record::Start { version: VERSION, unix_s: now.as_secs(), settings }
    }

    /// One look and what follows from it; and how long until the next.
    pub fn step(&mut self) -> (Duration, Vec<Event>) {
        let mut events = Vec::new();
        let observation = self.observer.observe(&self.overrides);
        let at_s = self.at_s();
        self.counts.looks += 1;
        self.counts.resets = self.observer.resets();
        events.extend(observation.troubles.into_iter().map(Event::Note));
        let online = online();
        if self.online != online {
            self.online = online;
            self.refresh_machine(&mut events);
        }
        if observation.rearranged && *self.observer.functions() != self.functions {
            self.functions = self.observer.functions().to_vec();
            let pinned = pinned(&self.functions);
            self.engine.set_functions(self.functions.clone(), pinned);
            let functions = self.functions.clone();
            events.push(Event::Record(Record::Functions { at_s, functions }));
        }
        self.tell_rates(at_s, observation.rearranged, &mut events);
        if self.retry_s.is_some_and(|retry| retry <= at_s) {
            self.retry_s = None;
            self.engine.require("the last plan could not be carried out".into());
        }
        let mut wait = self.options.period;
        match self.engine.look(at_s, self.observer.edges()) {
            Outcome::Nothing => {}
            Outcome::LookSoon => wait = wait.min(SOON),
            Outcome::Plan(why) => self.plan(why, &mut events),
        }
        if let Some(measured) = self.engine.measure(at_s, self.observer.edges()) {
            events.push(Event::Note(measured.to_string()));
            events.push(Event::Record(Record::Measured(measured)));
        }
        (wait, events)
    }

    fn tell_rates(&mut self, at_s: f64, rearranged: bool, events: &mut Vec<Event>) {
        let edges = self.observer.edges();
        if rearranged {
            let name = |edge: &Edge| EdgeName {
                a: edge.a.clone(),
                b: edge.b.clone(),
                origins: edge.origins.clone(),
            };
            let names: Vec<EdgeName> = edges.iter().map(name).collect();
            if names != self.edge_names {
                self.edge_names.clone_from(&names);
                events.push(Event::Record(Record::Edges { at_s, edges: names }));
            }
        }
        let rates = edges.iter().map(|edge| edge.rate.round()).collect();
        let mut dropped: Vec<f64> = edges.iter().map(|edge| edge.dropped.round()).collect();
        if dropped.iter().all(|rate| *rate == 0.0) {
            dropped.clear();
        }
        events.push(Event::Record(Record::Sample { at_s, rates, dropped }));
    }

    fn plan(&mut self, why: String, events: &mut Vec<Event>) {
        self.refresh_machine(events);
        let places = apply::whereabouts(&self.functions);
        let at_s = self.at_s();
        self.counts.plans += 1;
        match self.engine.plan(at_s, why, self.observer.edges(), places) {
            Ok(decision) => self.carry_out(decision, events),
            Err(error) => {
                events.push(Event::Note(format!("no plan: {error}")));
                let why = error.to_string();
                events.push(Event::Record(Record::Failed { at_s, why }));
                self.retry_s = Some(at_s + RETRY_AFTER_S);
            }
        }
    }

    fn carry_out(&mut self, decision: Decision, events: &mut Vec<Event>) {
        let verb = if self.options.dry_run { "would move" } else { "move" };
        events.extend(decision.lines(verb).into_iter().map(Event::Note));
        events.extend(decision.sharing().map(Event::Note));
        events.push(Event::Record(Record::Decision(decision.clone())));
        let journal = self.journal.as_mut().filter(|_| !self.options.dry_run);
        let (Some(journal), false) = (journal, decision.moves.is_empty()) else {
            // Dry: from here on as if it had been done, so that it is not said again.
            return self.engine.applied(&decision);
        };
        let nodes: Vec<NodeId> = self.engine.machine().nodes.iter().map(|node| node.id).collect();
        let order = |one: &crate::record::Move| {
            let function = self.functions.iter().find(|function| function.name == one.function)?;
            let memory = self.options.memory.then_some(one.to_node);
            Some(Order { function: function.clone(), cpu: one.to, memory })
        };
        let orders: Vec<Order> = decision.moves.iter().filter_map(order).collect();
        let began = Instant::now();
        match apply::apply(&orders, &nodes, journal) {
            Ok(steps) => {
                let took_s = began.elapsed().as_secs_f64();
                self.engine.applied(&decision);
                self.counts.moves += decision.moves.len() as u64;
                self.counts.apply_s = took_s;
                let at_s = self.at_s();
                events.push(Event::Record(Record::Applied { at_s, steps, took_s }));
                if let Err(error) = self.journal.as_mut().map_or(Ok(()), Journal::tidy) {
                    events.push(Event::Note(error.to_string()));
                }
            }
            Err(failure) => {
                self.engine.failed();
                self.counts.failures += 1;
                let at_s = self.at_s();
                let why = failure.to_string();
                events.push(Event::Note(format!("failed: {why}")));
                events.push(Event::Record(Record::Failed { at_s, why }));
                // Who has gone is not there at the next look, which plans anew; nothing else
                // changes so soon.
                if !matches!(failure.trouble, actuator::Trouble::Gone(_)) {
                    self.retry_s = Some(at_s + RETRY_AFTER_S);
                } else {
                    self.observer.doubt();
                    self.engine.require(format!("{} went", failure.function));
                }
            }
        }
    }

    /// Everything back to what it was.
    pub fn stop(mut self) -> Vec<Event> {
        let at_s = self.at_s();
        let mut events = vec![Event::Record(Record::Stop { at_s })];
        if let Some(journal) = &mut self.journal {
            let troubles = journal.undo(0);
            events.extend(troubles.iter().map(|trouble| Event::Note(trouble.to_string())));
        }
        events
    }

    fn refresh_machine(&mut self, events: &mut Vec<Event>) {
        let mut ours: BTreeSet<u32> =
            self.observer.processes().values().flatten().map(|one| one.pid).collect();
        for function in &self.functions {
            if let Target::Cgroup { path } = &function.target {
                ours.extend(cgroup::processes(path));
            }
        }
        match machine(&ours, self.options.cpus.as_ref()) {
            Ok(mut machine) => {
                if machine.free().is_empty() && !machine.pinned.is_empty() {
                    // Better beside somebody than nowhere.
                    machine.pinned.clear();
                    let what = "others are pinned to every CPU: functions share with them";
                    events.push(Event::Note(what.into()));
                }
                if machine != *self.engine.machine() || !self.machine_told {
                    self.machine_told = true;
                    let at_s = self.at_s();
                    let pinned = self.engine.pinned().clone();
                    let boxed = Box::new(machine.clone());
                    let record = Record::Machine { at_s, machine: boxed, pinned };
                    events.push(Event::Record(record));
                }
                self.engine.set_machine(machine);
            }
            Err(error) => events.push(Event::Note(error.to_string())),
        }
    }
}

/// This machine; as pinned to count only CPUs of others than `ours`.
pub fn machine(
    ours: &BTreeSet<u32>,
    cpus: Option<&BTreeSet<CpuId>>,
) -> Result<Machine, yasmin_topology::Error> {
    let mut machine = Machine::discover()?;
    machine.pinned.clear();
    if let Some(cpus) = cpus {
        machine.isolated.clear();
        machine.allowed = machine.allowed.intersection(cpus).copied().collect();
        return Ok(machine);
    }
    let online: BTreeSet<CpuId> = machine.cpus.iter().map(|cpu| cpu.id).collect();
    let others = pinned_threads(&online, 1).into_iter().filter(|one| !ours.contains(&one.pid));
    machine.pinned = others.flat_map(|one| one.cpus).collect();
    Ok(machine)
}

/// Functions that came with one CPU: somebody placed them before.
pub fn pinned(functions: &[Function]) -> BTreeMap<String, CpuId> {
    let one = |function: &Function| Some((function.name.clone(), actuator::pinned(function)?));
    functions.iter().filter_map(one).collect()
}

fn online() -> String {
    fs::read_to_string(ONLINE).unwrap_or_default()
}
