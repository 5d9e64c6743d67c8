//! All sources together: functions that stay known while they live, and edges between them.
//!
//! Who is there and who talks to whom is put together when a source says something else than at
//! the last look; between that a look only reads counters.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use crate::function::{Function, Layout, LinkEnd, Process};
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
    /// What the sources said last, and the processes that the operator named.
    layouts: Vec<(&'static str, Arc<Layout>)>,
    told: Vec<Option<Process>>,
    known: BTreeMap<String, Known>,
    /// Functions that count.
    functions: Vec<Function>,
    processes: HashMap<String, Vec<Process>>,
    /// What each source last complained of.
    troubles: BTreeMap<&'static str, String>,
    probation: u32,
}

struct Known {
    function: Function,
    processes: Vec<Process>,
    readings: u32,
    /// It was in the last reading.
    seen: bool,
}

#[derive(Debug, Default)]
pub struct Observation {
    /// Functions or edges may be others than at the last look; otherwise only rates are.
    pub rearranged: bool,
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
            layouts: Vec::new(),
            told: Vec::new(),
            known: BTreeMap::new(),
            functions: Vec::new(),
            processes: HashMap::new(),
            troubles: BTreeMap::new(),
            probation: PROBATION,
        }
    }

    /// Everything counts from the first reading on: for a look at what is there.
    pub fn at_once(mut self) -> Self {
        self.probation = 1;
        self
    }

    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The processes of each function, by name, whatever moves it.
    pub fn processes(&self) -> &HashMap<String, Vec<Process>> {
        &self.processes
    }

    pub fn edges(&self) -> &[Edge] {
        self.rates.edges()
    }

    /// Counters that ran backwards so far.
    pub fn resets(&self) -> u64 {
        self.rates.resets
    }

    /// What is known of processes has proved wrong: every source looks again.
    pub fn doubt(&mut self) {
        self.sources.iter_mut().for_each(|source| source.doubt());
    }

    pub fn observe(&mut self, overrides: &Overrides) -> Observation {
        let mut observation = Observation::default();
        let now = Instant::now();
        let (mut layouts, mut counters) = (Vec::new(), Vec::new());
        for source in &mut self.sources {
            match source.read() {
                Ok(mut reading) => {
                    self.troubles.remove(source.name());
                    layouts.push((source.name(), reading.layout));
                    counters.append(&mut reading.counters);
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
        let told = overrides.processes();
        if !self.stands(&layouts, &told) {
            (self.layouts, self.told) = (layouts, told);
            self.arrange(overrides);
            observation.rearranged = true;
        }
        self.rates.update(&counters, elapsed_s);
        observation
    }

    /// Nothing but counters can have changed since the last look.
    fn stands(&self, layouts: &[(&'static str, Arc<Layout>)], told: &[Option<Process>]) -> bool {
        let same = |one: &(&str, Arc<Layout>), other: &(&str, Arc<Layout>)| {
            one.0 == other.0 && (Arc::ptr_eq(&one.1, &other.1) || one.1 == other.1)
        };
        self.last.is_some()
            && self.told == told
            && self.layouts.len() == layouts.len()
            && self.layouts.iter().zip(layouts).all(|(one, other)| same(one, other))
            && self.known.values().all(|known| {
                known.readings >= self.probation && (known.seen || is_alive(&known.processes))
            })
    }

    fn arrange(&mut self, overrides: &Overrides) {
        let mut merged = merge(&self.layouts);
        overrides.apply_to_functions(&mut merged.functions, &self.told);
        self.remember(merged.functions);
        let counts =
            |name: &str| self.known.get(name).is_some_and(|known| known.readings >= self.probation);
        let is_known = |end: &LinkEnd| end.function().is_none_or(counts);
        merged.links.retain(|(_, link)| is_known(&link.a) && is_known(&link.b));
        self.rates.arrange(&merged.links);
        self.functions.clear();
        self.processes.clear();
        for (name, known) in &self.known {
            if known.readings >= self.probation {
                self.functions.push(known.function.clone());
                if !known.processes.is_empty() {
                    self.processes.insert(name.clone(), known.processes.clone());
                }
            }
        }
        self.refiner.refine(&mut self.functions);
    }

    /// A function whose connections end for a while is still there while its processes live.
    fn remember(&mut self, functions: Vec<Function>) {
        let mut before = std::mem::take(&mut self.known);
        for function in functions {
            let known = before.remove(&function.name);
            let processes = function.processes().to_vec();
            let readings = known.map_or(0, |known| known.readings).saturating_add(1);
            let name = function.name.clone();
            self.known.insert(name, Known { function, processes, readings, seen: true });
        }
        for (name, known) in before {
            if is_alive(&known.processes) && known.readings >= self.probation {
                self.known.insert(name, Known { seen: false, ..known });
            }
        }
    }
}

fn is_alive(processes: &[Process]) -> bool {
    processes.iter().any(|process| process::is_alive(*process))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::function::{Counter, Link, Path, Reading, Target};

    /// Says one reading after the other.
    struct Script(std::vec::IntoIter<Reading>);

    impl Source for Script {
        fn name(&self) -> &'static str {
            "script"
        }

        fn read(&mut self) -> Result<Reading, Trouble> {
            self.0.next().ok_or_else(|| Trouble::Absent("the script is over".into()))
        }
    }

    /// Functions in a row, and what the links between them count.
    fn reading(functions: &[&str], bytes: &[u64]) -> Reading {
        let link = |(at, bytes): (usize, &u64)| {
            let end = |at: usize| LinkEnd::Function(functions[at].into());
            let (a, b, id) = (end(at), end(at + 1), functions[at + 1].into());
            let link = Link { id, a, b, path: Path::Memory, origin: "script".into() };
            (link, Counter { bytes: *bytes, ..Counter::default() })
        };
        let function = |name: &&str| Function { name: (*name).to_owned(), target: Target::Fixed };
        let functions = functions.iter().map(function).collect();
        Reading::new(functions, bytes.iter().enumerate().map(link).collect())
    }

    #[test]
    fn what_has_not_changed_is_not_put_together_again() {
        let (two, three) = (["a", "b"], ["a", "b", "c"]);
        let script = vec![
            reading(&two, &[100]),
            reading(&two, &[200]),
            // Told as a new one, and the same.
            reading(&two, &[400]),
            reading(&three, &[700, 5]),
            reading(&three, &[1000, 105]),
            reading(&two, &[1400]),
        ];
        let mut observer = Observer::new(vec![Box::new(Script(script.into_iter()))]).at_once();
        let mut seen = Vec::new();
        for _ in 0..7 {
            let rearranged = observer.observe(&Overrides::default()).rearranged;
            let counts: Vec<bool> = observer.edges().iter().map(|edge| edge.rate > 0.0).collect();
            seen.push((rearranged, observer.functions().len(), counts));
        }
        let expected = [
            (true, 2, vec![false]),
            (false, 2, vec![true]),
            (false, 2, vec![true]),
            (true, 3, vec![true, false]),
            (false, 3, vec![true, true]),
            (true, 2, vec![true]),
            (true, 0, vec![]),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn who_is_new_counts_after_some_looks() {
        let script: Vec<_> = (0..5).map(|at| reading(&["a", "b"], &[100 * at])).collect();
        let mut observer = Observer::new(vec![Box::new(Script(script.into_iter()))]);
        let looks: Vec<_> = (0..5)
            .map(|_| {
                let rearranged = observer.observe(&Overrides::default()).rearranged;
                (rearranged, observer.functions().len(), observer.edges().len())
            })
            .collect();
        let (before, after) = ((true, 0, 0), (false, 2, 1));
        assert_eq!(looks, [before, before, (true, 2, 1), after, after]);
    }
}
