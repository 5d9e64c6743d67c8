//! A plan is applied whole or not at all.

use std::collections::BTreeMap;

use yasmin_topology::{CpuId, NodeId};

use crate::actuator::{self, Step, Trouble, affinity, memory};
use crate::function::{Function, Target};
use crate::journal::Journal;

/// A function and where it is to run.
#[derive(Clone, Debug)]
pub struct Order {
    pub function: Function,
    pub cpu: CpuId,
    /// Where its memory is to go with it, if it is to.
    pub memory: Option<NodeId>,
}

/// Nothing was moved: the function that could not be, why, and what could not be taken back.
#[derive(Debug, thiserror::Error)]
#[error("{function}: {trouble}; nothing was moved{}", unstuck(.stuck))]
pub struct Failure {
    pub function: String,
    pub trouble: Trouble,
    pub stuck: Vec<Trouble>,
}

fn unstuck(troubles: &[Trouble]) -> String {
    let said: Vec<String> = troubles.iter().map(Trouble::to_string).collect();
    if said.is_empty() { String::new() } else { format!(", except that {}", said.join(", ")) }
}

/// Steps that were taken, in all.
pub fn apply(orders: &[Order], nodes: &[NodeId], journal: &mut Journal) -> Result<usize, Failure> {
    let start = journal.steps().len();
    let fail = |journal: &mut Journal, function: &str, trouble: Trouble| {
        let stuck = journal.undo(start);
        Err(Failure { function: function.to_owned(), trouble, stuck })
    };
    // Everything is looked at before anything is set.
    let mut plan: Vec<(&Order, Vec<Step>)> = Vec::new();
    for order in orders {
        match actuator::steps(&order.function, order.cpu) {
            Ok(steps) => plan.push((order, steps)),
            Err(trouble) => return fail(journal, &order.function.name, trouble),
        }
    }
    let all: Vec<Step> = plan.iter().flat_map(|(_, steps)| steps.clone()).collect();
    if let Err(error) = journal.note(&all) {
        return fail(journal, "the journal", Trouble::Failed(error.to_string()));
    }
    for (order, steps) in &plan {
        let taken = steps.iter().try_for_each(|step| take(order, step));
        if let Err(trouble) = taken.and_then(|()| follow(order, nodes, journal)) {
            return fail(journal, &order.function.name, trouble);
        }
    }
    Ok(journal.steps().len() - start)
}

/// A thread that ended has nothing to be moved, as long as its process lives.
fn take(order: &Order, step: &Step) -> Result<(), Trouble> {
    match actuator::take(step) {
        Err(Trouble::Gone(_)) if is_alive(&order.function) => Ok(()),
        other => other,
    }
}

fn is_alive(function: &Function) -> bool {
    function.processes().iter().any(|process| crate::process::is_alive(*process))
}

/// What was started meanwhile, and the memory.
fn follow(order: &Order, nodes: &[NodeId], journal: &mut Journal) -> Result<(), Trouble> {
    let note = |journal: &mut Journal, steps: &[Step]| {
        journal.note(steps).map_err(|error| Trouble::Failed(error.to_string()))
    };
    if let Target::Processes { processes } = &order.function.target {
        for process in processes {
            for round in 0.. {
                let steps = affinity::stragglers(*process, order.cpu)?;
                if steps.is_empty() {
                    break;
                }
                if round == affinity::rounds() {
                    let what = "starts threads faster than they can be pinned";
                    return Err(Trouble::Failed(format!("process {} {what}", process.pid)));
                }
                note(journal, &steps)?;
                steps.iter().try_for_each(|step| take(order, step))?;
            }
        }
    }
    let Some(node) = order.memory else { return Ok(()) };
    for process in order.function.processes() {
        let Some(step) = memory::step(*process, nodes, node) else { continue };
        note(journal, std::slice::from_ref(&step))?;
        take(order, &step)?;
    }
    Ok(())
}

/// Where functions are now, by name.
pub fn whereabouts(functions: &[Function]) -> BTreeMap<String, CpuId> {
    let place =
        |function: &Function| Some((function.name.clone(), actuator::whereabouts(function)?));
    functions.iter().filter_map(place).collect()
}

#[cfg(test)]
mod tests;
