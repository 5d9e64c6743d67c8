//! What came out: every sample, where its bytes went, and on what machine.

use serde::Serialize;

use super::counters::Carried;
use super::launch::Run;
use super::load::Besides;
use super::placement::Placement;
use super::plan::Case;
use super::proof;
use crate::bench::Limits;
use crate::demo::interrupt;
use yasmin_measure::environment::Environment;
use yasmin_measure::spread::Spread;

/// Of report.json; a change that old readers do not understand counts it up.
pub const FORMAT: u32 = 1;

#[derive(Serialize)]
pub struct Report {
    pub format: u32,
    pub environment: Environment,
    pub governor: String,
    /// Programs that were used, and what they say of their versions.
    pub versions: Vec<Version>,
    /// How the broker proved that two ends belong together.
    pub proof: String,
    pub rounds: u16,
    pub placements: Vec<Placement>,
    pub warnings: Vec<String>,
    /// What no path passes; where paths are compared with each other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    pub outcomes: Vec<Outcome>,
}

#[derive(Serialize)]
pub struct Version {
    pub program: String,
    pub version: String,
}

/// One case in all rounds.
#[derive(Serialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub case: Case,
    /// Without what the placement puts before it.
    pub command: String,
    /// Whether workers may use fewer CPUs than the lab itself may.
    pub pinned: bool,
    /// The CPUs that each worker might use, in the last round.
    pub worker_cpus: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Spread>,
    /// Million keys ranked a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mops: Option<Spread>,
    /// Short connections, one by one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_s: Option<Spread>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub points: Vec<Size>,
    pub behaviours: Vec<Behaviour>,
    pub runs: Vec<Record>,
    /// Runs that did not end in their time, and were repeated.
    pub hung: u32,
    /// Whether the bytes of all runs went by the path that the name claims.
    pub proven: bool,
    pub failure: Option<String>,
}

/// Something that programs rely on in a TCP connection.
#[derive(Serialize)]
pub struct Behaviour {
    pub name: String,
    /// In every round.
    pub is_as_tcp: bool,
}

/// One message size. Quantities without a meaning have no samples.
#[derive(Serialize)]
pub struct Size {
    pub len_bytes: u64,
    pub latency_ns: Spread,
    pub bytes_s: Spread,
    pub messages_s: Spread,
}

/// One run.
#[derive(Serialize)]
pub struct Record {
    /// Payload, as the kernel says.
    pub moved_bytes: u64,
    #[serde(flatten)]
    pub carried: Carried,
    #[serde(flatten)]
    pub besides: Besides,
    /// Start and end of the programs, and the kernel's own checks, with it.
    pub wall_s: f64,
    /// The CPUs' time of all its programs, the kernel's for them too.
    pub cpu_s: f64,
    pub checks: u64,
    /// Why the path is not proven.
    pub astray: Option<String>,
}

impl Outcome {
    pub fn new(case: Case, command: String) -> Self {
        Self {
            case,
            command,
            pinned: false,
            worker_cpus: Vec::new(),
            seconds: None,
            mops: None,
            connections_s: None,
            points: Vec::new(),
            behaviours: Vec::new(),
            runs: Vec::new(),
            hung: 0,
            proven: false,
            failure: None,
        }
    }

    /// Takes in a run. `cpus`: how many the lab itself may use.
    pub fn take(&mut self, run: Run, cpus: usize) {
        let Run { output, carried, besides, wall_s, cpu_s } = run;
        let moved_bytes = output.moved_bytes;
        let astray = proof::check(self.case.path, self.case.workers, moved_bytes, &carried).err();
        self.runs.push(Record {
            moved_bytes,
            carried,
            besides,
            wall_s,
            cpu_s,
            checks: output.checks,
            astray,
        });
        self.pinned |= output.is_pinned(cpus);
        if let Some(seconds) = output.seconds {
            self.seconds.get_or_insert_default().add(seconds);
        }
        if let Some(mops) = output.mops {
            self.mops.get_or_insert_default().add(mops);
        }
        if let Some(rate) = output.connections_s {
            self.connections_s.get_or_insert_default().add(rate);
        }
        for point in &output.points {
            let size = self.size(point.len_bytes);
            for (samples, sample) in [
                (&mut size.latency_ns, point.latency_ns),
                (&mut size.bytes_s, point.bytes_s),
                (&mut size.messages_s, point.messages_s),
            ] {
                if sample > 0.0 {
                    samples.add(sample);
                }
            }
        }
        for (name, is_as_tcp) in output.behaviours {
            match self.behaviours.iter_mut().find(|known| known.name == name) {
                Some(known) => known.is_as_tcp &= is_as_tcp,
                None => self.behaviours.push(Behaviour { name, is_as_tcp }),
            }
        }
        self.worker_cpus = output.cpus;
    }

    fn size(&mut self, len_bytes: u64) -> &mut Size {
        let at = self.points.iter().position(|size| size.len_bytes == len_bytes);
        let at = at.unwrap_or_else(|| {
            let empty = Spread::default;
            self.points.push(Size {
                len_bytes,
                latency_ns: empty(),
                bytes_s: empty(),
                messages_s: empty(),
            });
            self.points.len() - 1
        });
        &mut self.points[at]
    }

    /// After the last round: medians, and the verdict on the path.
    pub fn finish(&mut self) {
        let single = [&mut self.seconds, &mut self.mops, &mut self.connections_s];
        single.into_iter().flatten().for_each(Spread::finish);
        for size in &mut self.points {
            [&mut size.latency_ns, &mut size.bytes_s, &mut size.messages_s]
                .into_iter()
                .for_each(Spread::finish);
        }
        let astray: Vec<&str> = self.runs.iter().filter_map(|run| run.astray.as_deref()).collect();
        self.proven = astray.is_empty() && !self.runs.is_empty() && self.failure.is_none();
        if let (Some(first), None) = (astray.first(), &self.failure) {
            let (bad, all) = (astray.len(), self.runs.len());
            let path = self.case.path.name();
            self.failure = Some(format!("path {path} not proven in {bad} of {all} runs: {first}"));
        }
    }

    /// Of the payload, what went through rings.
    pub fn ring_percent(&self) -> Option<f64> {
        let moved: u64 = self.runs.iter().map(|run| run.moved_bytes).sum();
        let rings: u64 = self.runs.iter().filter_map(|run| run.carried.ring_bytes).sum();
        (moved > 0).then(|| 100.0 * rings as f64 / moved as f64)
    }
}

/// More of all CPUs' time than this, and figures suffer.
const BUSY_PERCENT: f64 = 10.0;
const STEAL_PERCENT: f64 = 2.0;
/// Fewer samples than this, and a median says little.
const FEW_ROUNDS: u16 = 5;

impl Report {
    /// Adds what makes the figures less certain.
    pub fn warn(&mut self) {
        let runs = || self.outcomes.iter().flat_map(|outcome| &outcome.runs);
        let all = runs().count();
        let busy = runs().filter(|run| run.besides.others_percent > BUSY_PERCENT).count();
        let stolen = runs().filter(|run| run.besides.steal_percent > STEAL_PERCENT).count();
        if busy > 0 {
            self.warnings.push(format!(
                "the machine was busy: in {busy} of {all} runs other programs used more than \
                 {BUSY_PERCENT} % of the CPUs"
            ));
        }
        if stolen > 0 {
            self.warnings.push(format!(
                "in {stolen} of {all} runs the hypervisor took more than {STEAL_PERCENT} % of the \
                 CPUs' time"
            ));
        }
        if interrupt::check().is_err() {
            self.warnings
                .push("interrupted: the report has what was measured until then".to_owned());
        }
        if self.rounds < FEW_ROUNDS {
            self.warnings.push(format!("medians of {} rounds say little", self.rounds));
        }
        for outcome in self.outcomes.iter().filter(|outcome| outcome.hung > 0) {
            let (name, hung) = (&outcome.case.name, outcome.hung);
            self.warnings.push(format!("{name}: {hung} runs did not end and were repeated"));
        }
        let pinned = self.outcomes.iter().filter(|outcome| outcome.pinned).count();
        if pinned > 0 {
            let all = self.outcomes.len();
            self.warnings.push(format!("in {pinned} of {all} measurements workers were pinned"));
        }
    }

    pub fn failures(&self) -> Vec<String> {
        let failed = |outcome: &Outcome| {
            Some(format!("{}: {}", outcome.case.name, outcome.failure.as_ref()?))
        };
        self.outcomes.iter().filter_map(failed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::Output;
    use super::super::placement;
    use super::super::plan::{self, Plan};
    use super::*;

    fn outcome(name: &str) -> Outcome {
        let plan = Plan::parse(plan::FULL).unwrap();
        let cases = plan.cases(&placement::read(None).unwrap()).unwrap();
        let case = cases.into_iter().find(|case| case.name == name).unwrap();
        Outcome::new(case, String::new())
    }

    fn run(ring_bytes: Option<u64>, interface_bytes: u64) -> Run {
        let text = "cpus 0 0-1\nmoved 4000000\nseconds 2.0\nchecked 2 2\n";
        let carried = Carried { ring_bytes, interface_bytes, ..Carried::default() };
        let output = Output::parse(text).unwrap();
        Run { output, carried, besides: Besides::default(), wall_s: 3.0, cpu_s: 2.0 }
    }

    #[test]
    fn one_run_astray_is_a_failure_that_keeps_its_samples() {
        let mut outcome = outcome("heat/native/openmpi/rings/2");
        for ring_bytes in [4_000_000, 4_000_000, 100] {
            outcome.take(run(Some(ring_bytes), 40_000), 2);
        }
        outcome.finish();
        assert!(!outcome.proven && !outcome.pinned);
        assert!(outcome.failure.unwrap().contains("1 of 3 runs"));
        assert_eq!(outcome.seconds.unwrap().samples.len(), 3);
    }

    #[test]
    fn a_proven_path_is_no_failure() {
        let mut outcome = outcome("heat/native/openmpi/tcp/2");
        outcome.take(run(None, 4_100_000), 2);
        outcome.finish();
        assert!(outcome.proven && outcome.failure.is_none());
    }
}
