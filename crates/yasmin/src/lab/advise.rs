//! `yasmin lab advise`: which way to parallelise a job pays, from what was measured here.
//!
//! The model. A step of the job is `compute` of one worker, divided among the workers, and then for
//! each of them `messages` to send and as many to wait for. Of `n` workers on `c` CPUs, min(n, c) run
//! at a time:
//!
//!   step = compute / min(n, c) + messages * max(1, n / c) * one(len)
//!
//! one(len) is the time of one message. In MPI it is half of the ping-pong's measured round trip,
//! between measured sizes by ratios; beyond the last size its rate stays. Threads and segments write
//! once and read once in one memory: two cache lines, and `len` at the rate of two copies. Nothing
//! overlaps, and no step waits for a late worker: times are the best that can be, and their order is
//! what to go by.

use anyhow::bail;
use serde::Serialize;

use super::cli::Advise;
use super::seen::{Seen, SeenOutcome, SeenSize, read};
use crate::bench::{self, Limits};
use yasmin_measure::{cpus, figure, table};

/// A job, by its steps.
#[derive(Clone, Copy, Debug, Serialize)]
struct Job {
    workers: u32,
    compute_ns: f64,
    messages: u32,
    message_bytes: u64,
}

/// How long one message takes by one way.
enum Cost {
    Memory(Limits),
    /// Sizes in bytes and times in ns, by size; not empty.
    Measured(Vec<(f64, f64)>),
}

impl Cost {
    fn one_ns(&self, len_bytes: u64) -> f64 {
        let len = len_bytes as f64;
        let curve = match self {
            Self::Memory(limits) => {
                return 2.0 * limits.cache_line_ns + 1e9 * len / limits.two_copies_bytes_s;
            }
            Self::Measured(curve) => curve,
        };
        let above = curve.iter().position(|(size, _)| *size >= len);
        match above {
            Some(at) if at == 0 || curve[at].0 == len => curve[at].1,
            Some(at) => {
                let ((low, low_ns), (high, high_ns)) = (curve[at - 1], curve[at]);
                let low = low.max(1.0);
                let share = ((len.max(1.0) / low).ln() / (high / low).ln()).clamp(0.0, 1.0);
                low_ns * (high_ns / low_ns).powf(share)
            }
            None => {
                let (last, last_ns) = curve[curve.len() - 1];
                last_ns * len / last
            }
        }
    }
}

impl Job {
    fn step_ns(&self, cpus: usize, cost: &Cost) -> f64 {
        let (workers, cpus) = (f64::from(self.workers), cpus as f64);
        let turns = (workers / cpus).max(1.0);
        let talk_ns = if self.workers > 1 { cost.one_ns(self.message_bytes) } else { 0.0 };
        self.compute_ns / workers.min(cpus) + f64::from(self.messages) * turns * talk_ns
    }
}

/// One way, and what a step takes by it.
#[derive(Debug, Serialize)]
struct Way {
    name: String,
    step_ns: f64,
    /// Against one worker.
    gain: f64,
    communication_percent: f64,
}

/// A run that the model was not fitted to, beside what it says.
#[derive(Debug, Serialize)]
struct Check {
    name: String,
    measured_ns: f64,
    model_ns: f64,
}

#[derive(Serialize)]
struct Advice {
    job: Job,
    cpus: usize,
    /// The best first.
    ways: Vec<Way>,
    checks: Vec<Check>,
    sentence: String,
}

pub fn run(options: &Advise) -> anyhow::Result<()> {
    let seen = read(&options.report)?;
    let cpus = cpus::allowed()?.len();
    let job = Job {
        workers: options.workers,
        compute_ns: 1e6 * options.compute_ms,
        messages: options.messages,
        message_bytes: options.message_bytes,
    };
    let mut costs = measured(&seen);
    if costs.is_empty() {
        bail!(
            "{}: no proven ping-pong is in it; yasmin lab --quick --only pingpong measures one",
            options.report.display()
        );
    }
    let limits = bench::limits(job.message_bytes.clamp(1, 1 << 22) as usize)?;
    costs.push(("threads or segments".to_owned(), Cost::Memory(limits)));
    let ways = ways(job, cpus, &costs);
    let checks = checks(&seen, cpus, &costs);
    let sentence = sentence(job, cpus, &ways);
    let advice = Advice { job, cpus, ways, checks, sentence };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&advice)?);
    } else {
        print!("{}", draw(&advice));
    }
    Ok(())
}

fn name(outcome: &SeenOutcome) -> String {
    format!("{} over {}, {}", outcome.model, outcome.path, outcome.placement)
}

/// The ways whose messages were measured one by one.
fn measured(seen: &Seen) -> Vec<(String, Cost)> {
    let is_ping_pong = |outcome: &&SeenOutcome| {
        let first = outcome.arguments.first().map(String::as_str);
        outcome.kernel == "imb" && outcome.proven && first == Some("pingpong")
    };
    let curve = |outcome: &SeenOutcome| {
        let point = |size: &SeenSize| (size.len_bytes as f64, size.latency_ns.median);
        let mut curve: Vec<(f64, f64)> = outcome.points.iter().map(point).collect();
        curve.retain(|(_, ns)| *ns > 0.0);
        curve.sort_by(|a, b| a.0.total_cmp(&b.0));
        curve
    };
    let outcomes = seen.outcomes.iter().filter(is_ping_pong);
    let curves = outcomes.map(|outcome| (name(outcome), curve(outcome)));
    curves
        .filter(|(_, curve)| !curve.is_empty())
        .map(|(name, curve)| (name, Cost::Measured(curve)))
        .collect()
}

fn ways(job: Job, cpus: usize, costs: &[(String, Cost)]) -> Vec<Way> {
    let alone = Way {
        name: "one worker".to_owned(),
        step_ns: job.compute_ns,
        gain: 1.0,
        communication_percent: 0.0,
    };
    let quiet = Job { messages: 0, ..job };
    let way = |(name, cost): &(String, Cost)| {
        let step_ns = job.step_ns(cpus, cost);
        let communication_percent = 100.0 * (1.0 - quiet.step_ns(cpus, cost) / step_ns);
        Way { name: name.clone(), step_ns, gain: job.compute_ns / step_ns, communication_percent }
    };
    let mut ways: Vec<Way> = costs.iter().map(way).chain([alone]).collect();
    ways.sort_by(|a, b| a.step_ns.total_cmp(&b.step_ns));
    ways
}

/// Heat2D in two workers: in each step both send a row of n doubles, and wait for one.
fn checks(seen: &Seen, cpus: usize, costs: &[(String, Cost)]) -> Vec<Check> {
    let heat = || seen.outcomes.iter().filter(|outcome| outcome.kernel == "heat" && outcome.proven);
    let check = |outcome: &SeenOutcome| {
        let serial =
            heat().find(|other| other.model == "serial" && other.arguments == outcome.arguments)?;
        let [n, steps] = outcome.arguments.as_slice() else { return None };
        let (n, steps): (u64, f64) = (n.parse().ok()?, steps.parse().ok()?);
        let wanted = match outcome.model.as_str() {
            "openmp" | "openshmem" => "threads or segments".to_owned(),
            _ => name(outcome),
        };
        let (_, cost) = costs.iter().find(|(known, _)| *known == wanted)?;
        let job = Job {
            workers: outcome.workers,
            compute_ns: 1e9 * serial.seconds.as_ref()?.median / steps,
            messages: 1,
            message_bytes: 8 * n,
        };
        Some(Check {
            name: format!("heat {n}, {}", name(outcome)),
            measured_ns: 1e9 * outcome.seconds.as_ref()?.median,
            model_ns: steps * job.step_ns(cpus, cost),
        })
    };
    heat().filter(|outcome| outcome.workers == 2).filter_map(check).collect()
}

fn sentence(job: Job, cpus: usize, ways: &[Way]) -> String {
    let Some(best) = ways.first() else { return String::new() };
    let workers = job.workers;
    if best.name == "one worker" {
        return format!(
            "One worker is best: {} a step; {workers} would take longer by every way.",
            figure::nanoseconds(best.step_ns)
        );
    }
    let by = |path: &str| ways.iter().find(|way| way.name.contains(path));
    let mut text = format!(
        "With {workers} workers on {cpus} CPUs {} are best: {} a step, {} of one worker",
        best.name,
        figure::nanoseconds(best.step_ns),
        table::gain(best.gain)
    );
    match (by("over rings"), by("over tcp")) {
        (Some(rings), Some(tcp)) => {
            let times = table::gain(tcp.step_ns / rings.step_ns);
            text += &format!(
                "; MPI over rings takes {}, {times} as fast as over plain TCP",
                figure::nanoseconds(rings.step_ns)
            );
        }
        (Some(other), None) | (None, Some(other)) => {
            text += &format!("; {} takes {}", other.name, figure::nanoseconds(other.step_ns));
        }
        (None, None) => {}
    }
    if job.workers as usize > cpus {
        text += "; more workers than CPUs gain nothing";
    }
    text + "."
}

fn draw(advice: &Advice) -> String {
    let ways = advice.ways.iter().map(|way| {
        vec![
            way.name.clone(),
            figure::nanoseconds(way.step_ns),
            table::gain(way.gain),
            format!("{:.0} %", way.communication_percent),
        ]
    });
    let headings = ["", "a step", "of one worker", "communication"];
    let mut text =
        format!("{}\n\n{}\n", advice.sentence, table::draw(headings, 1, ways).trim_fmt());
    if !advice.checks.is_empty() {
        let checks = advice.checks.iter().map(|check| {
            vec![
                check.name.clone(),
                figure::nanoseconds(check.measured_ns),
                figure::nanoseconds(check.model_ns),
                format!("{:.2}", check.model_ns / check.measured_ns),
            ]
        });
        let headings = ["runs that the model does not know", "measured", "model", "ratio"];
        text += &format!("\n{}\n", table::draw(headings, 1, checks).trim_fmt());
    }
    text + "\nWhere to put workers: yasmin place, yasmin topology.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { cache_line_ns: 50.0, two_copies_bytes_s: 1e10, copy_len_bytes: 65536 };

    fn job(workers: u32, compute_ns: f64) -> Job {
        Job { workers, compute_ns, messages: 2, message_bytes: 1000 }
    }

    #[test]
    fn a_message_costs_what_was_measured() {
        let cost = Cost::Measured(vec![(0.0, 90.0), (1.0, 100.0), (100.0, 400.0)]);
        assert_eq!((cost.one_ns(0), cost.one_ns(1), cost.one_ns(100)), (90.0, 100.0, 400.0));
        // Halfway by ratios.
        assert!((cost.one_ns(10) - 200.0).abs() < 1e-9);
        assert_eq!(cost.one_ns(1000), 4000.0);
        assert_eq!(Cost::Memory(LIMITS).one_ns(1000), 200.0);
    }

    #[test]
    fn workers_share_cpus() {
        let cost = Cost::Memory(LIMITS);
        assert_eq!(job(1, 1e6).step_ns(2, &cost), 1e6);
        assert_eq!(job(2, 1e6).step_ns(2, &cost), 5e5 + 400.0);
        assert_eq!(job(4, 1e6).step_ns(2, &cost), 5e5 + 800.0);
    }

    #[test]
    fn little_work_is_for_one() {
        let costs = [("openmpi over tcp, native".to_owned(), Cost::Measured(vec![(1.0, 1e4)]))];
        let found = ways(job(2, 1000.0), 2, &costs);
        assert!(sentence(job(2, 1000.0), 2, &found).starts_with("One worker is best"));
        let found = ways(job(2, 1e9), 2, &costs);
        let said = sentence(job(2, 1e9), 2, &found);
        assert!(said.contains("openmpi over tcp") && said.contains("a step"), "{said}");
    }

    #[test]
    fn heat_is_checked_against_runs_of_its_own() {
        let outcome = |kernel: &str, model: &str, path: &str, workers: u32, more: &str| {
            format!(
                r#"{{"name": "", "kernel": "{kernel}", "model": "{model}", "path": "{path}", "workers": {workers},
                "placement": "native", "proven": true, {more}}}"#
            )
        };
        let heat = r#""arguments": ["100", "10"], "seconds": {"min": 0, "max": 1, "median": "#;
        let text = format!(
            r#"{{"format": 1, "environment": {{}}, "outcomes": [{}, {}, {}]}}"#,
            outcome("heat", "serial", "memory", 1, &format!("{heat} 0.001}}")),
            outcome("heat", "openmpi", "tcp", 2, &format!("{heat} 0.0006}}")),
            outcome(
                "imb",
                "openmpi",
                "tcp",
                2,
                r#""arguments": ["pingpong", "800"], "points":
                [{"len_bytes": 800, "latency_ns": {"median": 10000.0, "min": 0, "max": 1}}]"#
            )
        );
        let seen: Seen = serde_json::from_str(&text).unwrap();
        let costs = measured(&seen);
        let found = checks(&seen, 2, &costs);
        assert_eq!(found.len(), 1);
        // 10 steps of 100 us in two, and 10 us for a row.
        assert!((found[0].model_ns - 600_000.0).abs() < 1.0, "{found:?}");
    }
}
