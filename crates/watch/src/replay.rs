//! Decides again what a log recorded, by the same or another policy. The traffic is the log's:
//! what another placement would have made of it is not known.

use std::collections::BTreeMap;
use std::io::BufRead;

use yasmin_placement::Error as PlacementError;
use yasmin_topology::{CpuId, Machine};

use crate::engine::{Engine, Outcome};
use crate::function::Function;
use crate::overrides::Overrides;
use crate::rate::Edge;
use crate::record::{Decision, EdgeName, Record, Settings, VERSION};

#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("line {line}: {what}")]
    Line { line: usize, what: String },
    #[error("the log has no machine: it ends before the first plan")]
    NoMachine,
    #[error("line {line}: {error}")]
    Plan { line: usize, error: PlacementError },
    #[error(transparent)]
    Policy(#[from] PlacementError),
}

#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Report {
    pub policy: String,
    pub length_s: f64,
    pub samples: u64,
    pub decisions: Vec<Decision>,
    pub moves: usize,
    /// Traffic times distance, the mean over time once all was placed.
    pub mean_cost: f64,
    /// Decisions and moves of the log itself.
    pub recorded_decisions: usize,
    pub recorded_moves: usize,
}

/// `change` has a look at the settings of the log before they are used.
pub fn replay(
    log: impl BufRead,
    overrides: Overrides,
    change: impl FnOnce(&mut Settings),
) -> Result<Report, Trouble> {
    let mut report = Report::default();
    let mut player = Player::default();
    let mut change = Some(change);
    let mut records = Vec::new();
    for (at, line) in log.lines().enumerate() {
        let line_number = at + 1;
        let wrong = |what: String| Trouble::Line { line: line_number, what };
        let line = line.map_err(|error| wrong(error.to_string()))?;
        if line.trim().is_empty() {
            continue;
        }
        let mut parser = serde_json::Deserializer::from_str(&line);
        let record: Record = serde_path_to_error::deserialize(&mut parser)
            .map_err(|error| wrong(format!("{}: {}", error.path().clone(), error.into_inner())))?;
        match record {
            Record::Start { version, mut settings, .. } => {
                if version != VERSION {
                    return Err(wrong(format!("version {version} of the log, not {VERSION}")));
                }
                if let Some(change) = change.take() {
                    change(&mut settings);
                }
                report.policy.clone_from(&settings.policy);
                player.settings = settings;
            }
            other => records.push((line_number, other)),
        }
    }
    // The machine is written down with the first plan, a moment after the first samples.
    let first = records.iter().find_map(|(_, record)| match record {
        Record::Machine { machine, pinned, .. } => Some(((**machine).clone(), pinned.clone())),
        _ => None,
    });
    let (machine, pinned) = first.ok_or(Trouble::NoMachine)?;
    let mut engine = Engine::new(player.settings.clone(), overrides, machine)?;
    player.pinned = pinned;
    for (line, record) in records {
        player.play(&mut engine, record, &mut report).map_err(|error| match error {
            Wrong::Log(what) => Trouble::Line { line, what },
            Wrong::Plan(error) => Trouble::Plan { line, error },
        })?;
    }
    report.moves = report.decisions.iter().map(|one| one.moves.len()).sum();
    if player.placed_s > 0.0 {
        report.mean_cost = player.cost_sum / player.placed_s;
    }
    Ok(report)
}

enum Wrong {
    Log(String),
    Plan(PlacementError),
}

#[derive(Default)]
struct Player {
    settings: Settings,
    edges: Vec<EdgeName>,
    pinned: BTreeMap<String, CpuId>,
    last_s: Option<f64>,
    cost_sum: f64,
    placed_s: f64,
}

impl Player {
    fn play(
        &mut self,
        engine: &mut Engine,
        record: Record,
        report: &mut Report,
    ) -> Result<(), Wrong> {
        match record {
            Record::Machine { machine, .. } => self.set_machine(engine, *machine),
            Record::Functions { functions, .. } => self.set_functions(engine, functions),
            Record::Edges { edges, .. } => self.edges = edges,
            Record::Sample { at_s, rates, dropped } => {
                if rates.len() != self.edges.len() {
                    let (rates, edges) = (rates.len(), self.edges.len());
                    return Err(Wrong::Log(format!("{rates} rates for {edges} edges")));
                }
                report.samples += 1;
                report.length_s = at_s;
                let edges: Vec<Edge> = self
                    .edges
                    .iter()
                    .enumerate()
                    .map(|(at, name)| Edge {
                        a: name.a.clone(),
                        b: name.b.clone(),
                        rate: rates[at],
                        dropped: dropped.get(at).copied().unwrap_or(0.0),
                        origins: name.origins.clone(),
                    })
                    .collect();
                self.sample(engine, at_s, &edges, report)?;
            }
            Record::Decision(decision) => {
                report.recorded_decisions += 1;
                report.recorded_moves += decision.moves.len();
            }
            _ => {}
        }
        Ok(())
    }

    fn set_machine(&self, engine: &mut Engine, machine: Machine) {
        engine.set_machine(machine);
    }

    /// Who had a CPU before the log began has it in the replay, too.
    fn set_functions(&self, engine: &mut Engine, functions: Vec<Function>) {
        let pinned = functions
            .iter()
            .filter_map(|one| Some((one.name.clone(), *self.pinned.get(&one.name)?)))
            .collect();
        engine.set_functions(functions, pinned);
    }

    fn sample(
        &mut self,
        engine: &mut Engine,
        at_s: f64,
        edges: &[Edge],
        report: &mut Report,
    ) -> Result<(), Wrong> {
        let elapsed_s = self.last_s.replace(at_s).map_or(0.0, |last| at_s - last);
        if let Some(cost) = engine.present_cost(edges) {
            self.cost_sum += cost * elapsed_s;
            self.placed_s += elapsed_s;
        }
        if let Outcome::Plan(why) = engine.look(at_s, edges) {
            let decision = engine.plan(at_s, why, edges, BTreeMap::new()).map_err(Wrong::Plan)?;
            engine.applied(&decision);
            report.decisions.push(decision);
        }
        Ok(())
    }
}
