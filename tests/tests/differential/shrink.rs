//! The fewest and plainest steps that still differ.

use crate::program::{Act, Step};

/// Makes `steps` smaller as long as `differs` says so of what is left, and time allows.
///
/// `differs` gives the number of the step that differed first; what comes after it goes at once.
pub fn shrink(
    mut steps: Vec<Step>,
    mut differs: impl FnMut(&[Step]) -> Option<usize>,
) -> Vec<Step> {
    let mut part = steps.len().div_ceil(2);
    while part > 0 {
        let mut from = 0;
        let mut is_smaller = false;
        while from < steps.len() {
            let to = (from + part).min(steps.len());
            let left = [&steps[..from], &steps[to..]].concat();
            match differs(&left) {
                Some(last) => {
                    steps = left;
                    steps.truncate(last + 1);
                    is_smaller = true;
                }
                None => from = to,
            }
        }
        part = if part == 1 && is_smaller { 1 } else { part / 2 };
    }
    for nth in 0..steps.len() {
        while let Some(simpler) = simpler(&steps[nth]).into_iter().find(|step| {
            let mut tried = steps.clone();
            tried[nth] = step.clone();
            differs(&tried).is_some()
        }) {
            steps[nth] = simpler;
        }
    }
    steps
}

/// The same step, each time a little plainer.
fn simpler(step: &Step) -> Vec<Step> {
    let Step::At(at, act) = step else { return Vec::new() };
    let mut all = Vec::new();
    if at.by_copy {
        let mut at = *at;
        at.by_copy = false;
        all.push(Step::At(at, act.clone()));
    }
    if at.in_child {
        let mut at = *at;
        at.in_child = false;
        all.push(Step::At(at, act.clone()));
    }
    let mut with = |change: &mut dyn FnMut(&mut Act) -> bool| {
        let mut act = act.clone();
        if change(&mut act) {
            all.push(Step::At(*at, act));
        }
    };
    // Halves, and the least of all first.
    for goal in [1, 2] {
        with(&mut |act| match act {
            Act::Send { len, .. }
            | Act::SendMore { len, .. }
            | Act::Receive { len, .. }
            | Act::Fetch { len, .. }
            | Act::Talk { len, .. }
            | Act::Stream { len, .. }
            | Act::BadMemory { len, .. } => smaller(len, goal),
            _ => false,
        });
        with(&mut |act| match act {
            Act::Talk { rounds, .. } => smaller(rounds, goal),
            _ => false,
        });
    }
    with(&mut |act| match act {
        Act::Send { flags, .. } | Act::Receive { flags, .. } => plainer(flags, "-"),
        _ => false,
    });
    with(&mut |act| match act {
        Act::Send { form, .. } => plainer(form, "send"),
        Act::Receive { form, .. } => plainer(form, "recv"),
        _ => false,
    });
    with(&mut |act| match act {
        Act::Talk { waits, .. } => plainer(&mut waits[1], "poll"),
        _ => false,
    });
    all
}

fn smaller(number: &mut usize, goal: usize) -> bool {
    let least = if goal == 1 { 1 } else { *number / 2 };
    let is_smaller = least > 0 && least < *number;
    if is_smaller {
        *number = least;
    }
    is_smaller
}

fn plainer(word: &mut &'static str, plain: &'static str) -> bool {
    let changes = *word != plain;
    *word = plain;
    changes
}
