//! All sources together: functions that stay known while they live, and edges between them.

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::function::{End, Function, Link, Process};
use crate::merge::merge;
use crate::overrides::Overrides;
use crate::process;
use crate::rate::{Edge, Rates};
use crate::refine::Refiner;
use crate::source::{Source, Trouble};

/// Readings that a function has to be in before it counts: who lives for a moment is not placed.
const PROBATION: u32 = 3;

pub struct Observer {
    sources: Vec<Box<dyn Source + Send>>,
    rates: Rates,
    refiner: Refiner,
    last: Option<Instant>,
    known: BTreeMap<String, Known>,
    /// What each source last complained of.
    troubles: BTreeMap<&'static str, String>,
    probation: u32,
}

struct Known {
    function: Function,
    processes: Vec<Process>,
    readings: u32,
}

#[derive(Debug, Default)]
pub struct Observation {
    pub functions: Vec<Function>,
    /// The processes of each, by name, whatever moves it.
    pub processes: HashMap<String, Vec<Process>>,
    pub edges: Vec<Edge>,
    /// New complaints of sources.
    pub troubles: Vec<String>,
}

impl Observer {
    pub fn new(sources: Vec<Box<dyn Source + Send>>) -> Self {
        Self {
            sources,
            rates: Rates::new(),
            refiner: Refiner::new(),
            last: None,
            known: BTreeMap::new(),
            troubles: BTreeMap::new(),
            probation: PROBATION,
        }
    }

    /// Everything counts from the first reading on: for a look at what is there.
    pub fn at_once(mut self) -> Self {
        self.probation = 1;
        self
    }

    pub fn observe(&mut self, overrides: &Overrides) -> Observation {
        let mut observation = Observation::default();
        let now = Instant::now();
        let mut readings = Vec::new();
        for source in &mut self.sources {
            match source.read() {
                Ok(reading) => {
                    self.troubles.remove(source.name());
                    readings.push((source.name(), reading));
                }
                Err(Trouble::Absent(_)) => drop(self.troubles.remove(source.name())),
                Err(Trouble::Failed(what)) => {
                    let before = self.troubles.insert(source.name(), what.clone());
                    if before.as_ref() != Some(&what) {
                        observation.troubles.push(format!("{}: {what}", source.name()));
                    }
                }
            }
        }
        let elapsed_s = self.last.replace(now).map_or(0.0, |last| (now - last).as_secs_f64());
        let mut reading = merge(readings);
        overrides.apply_to_functions(&mut reading.functions);
        self.remember(reading.functions);
        let counts =
            |name: &str| self.known.get(name).is_some_and(|known| known.readings >= self.probation);
        let is_known = |end: &End| end.function().is_none_or(counts);
        let links: Vec<Link> = reading
            .links
            .into_iter()
            .filter(|link| is_known(&link.a) && is_known(&link.b))
            .collect();
        observation.edges = self.rates.update(&links, elapsed_s);
        for (name, known) in &self.known {
            if known.readings >= self.probation {
                observation.functions.push(known.function.clone());
                if !known.processes.is_empty() {
                    observation.processes.insert(name.clone(), known.processes.clone());
                }
            }
        }
        self.refiner.refine(&mut observation.functions);
        observation
    }

    /// A function whose connections end for a while is still there while its processes live.
    fn remember(&mut self, functions: Vec<Function>) {
        let mut before = std::mem::take(&mut self.known);
        for function in functions {
            let known = before.remove(&function.name);
            let processes = function.processes().to_vec();
            let readings = known.map_or(0, |known| known.readings).saturating_add(1);
            self.known.insert(function.name.clone(), Known { function, processes, readings });
        }
        for (name, known) in before {
            let lives = known.processes.iter().any(|process| process::is_alive(*process));
            if lives && known.readings >= self.probation {
                self.known.insert(name, known);
            }
        }
    }

    /// Counters that ran backwards so far.
    pub fn resets(&self) -> u64 {
        self.rates.resets
    }
}
