//! `yasmin lab peers`: the ways in which programs of one machine reach each other, in one table.
//!
//! The same programs, unmodified, by each way; rings as `yasmin run` gives them by default.

use super::cli::Common;
use super::plan::{self, Case, Plan};
use super::report::{Outcome, Report, Size};
use super::rings::Offers;
use super::way::{Kernel, Model, Path};
use super::{Study, kernels, placement, publish};
use crate::bench;
use crate::demo::process;
use yasmin_measure::figure;
use yasmin_measure::spread::Spread;
use yasmin_measure::table::{self, gain};

/// Of the plan, `lab/peers.toml`.
const LATENCY_BYTES: u64 = 64;
const BANDWIDTH_BYTES: u64 = 64 << 10;

pub const HEADINGS: [&str; 7] = [
    "",
    "programs have to",
    "64 B, one way",
    "64 KiB messages",
    "short connections",
    "CPU time for 1 GiB",
    "not as TCP does",
];

pub fn run(options: &Common) -> anyhow::Result<()> {
    let placements = placement::read(None)?;
    let plan = Plan::parse(plan::PEERS)?;
    let cases = plan.cases(&placements)?;
    let rounds = options.rounds.unwrap_or(plan.rounds);
    let study = Study { placements, cases, rounds, offers: Offers::Default };
    let Some(mut study) = study.chosen(options)? else { return Ok(()) };
    let left_out = leave_out(&mut study.cases);
    let mut report = study.run(options)?;
    report.warnings.extend(left_out);
    report.limits = Some(bench::limits(BANDWIDTH_BYTES as usize)?);
    publish(&report, &draw(&report), options)
}

/// What needs programs that are not here; says what and why.
fn leave_out(cases: &mut Vec<Case>) -> Vec<String> {
    let mut said: Vec<String> = Vec::new();
    cases.retain(|case| {
        let missing = case.needs().find(|(program, _)| process::find(program).is_none());
        let reason = match missing {
            Some((program, package)) => {
                format!("{program} is missing; on Debian: apt-get install {package}")
            }
            None if case.kernel == Kernel::Iceoryx2 && kernels::iceoryx2().is_none() => {
                kernels::NO_ICEORYX2.to_owned()
            }
            None => return true,
        };
        let line = format!("{} is left out: {reason}", way(case));
        if !said.contains(&line) {
            said.push(line);
        }
        false
    });
    said
}

/// A way, on one placement or another.
fn way(case: &Case) -> String {
    match case.model {
        Model::Sockets => case.path.describe().to_owned(),
        _ => format!("{}, {}", case.model.describe(), case.path.describe()),
    }
}

/// What one way costs on one placement.
struct Peer<'a> {
    case: &'a Case,
    outcomes: Vec<&'a Outcome>,
}

impl<'a> Peer<'a> {
    fn all(report: &'a Report) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for outcome in &report.outcomes {
            let case = &outcome.case;
            let known = all.iter_mut().find(|peer| peer.is(&case.placement, case.model, case.path));
            match known {
                Some(peer) => peer.outcomes.push(outcome),
                None => all.push(Self { case, outcomes: vec![outcome] }),
            }
        }
        all
    }

    fn is(&self, placement: &str, model: Model, path: Path) -> bool {
        self.case.placement == placement && self.case.model == model && self.case.path == path
    }

    fn size(&self, len_bytes: u64, of: fn(&Size) -> &Spread) -> Option<&Spread> {
        let sizes = self.outcomes.iter().flat_map(|outcome| &outcome.points);
        let spread = |size: &'a Size| (size.len_bytes == len_bytes).then(|| of(size));
        sizes.filter_map(spread).find(|spread| !spread.samples.is_empty())
    }

    fn latency_ns(&self) -> Option<&Spread> {
        self.size(LATENCY_BYTES, |size| &size.latency_ns)
    }

    fn bytes_s(&self) -> Option<&Spread> {
        self.size(BANDWIDTH_BYTES, |size| &size.bytes_s)
    }

    fn connections_s(&self) -> Option<&Spread> {
        self.outcomes.iter().find_map(|outcome| outcome.connections_s.as_ref())
    }

    /// Where bytes went as fast as they could. Both sides', start and end of the programs with it.
    fn cpu_s_gib(&self) -> Option<Spread> {
        let streams = |outcome: &&&Outcome| {
            outcome.case.arguments.first().is_some_and(|word| word == "bandwidth")
        };
        let runs = &self.outcomes.iter().find(streams)?.runs;
        let each = |moved_bytes: u64, cpu_s: f64| cpu_s * f64::from(1 << 30) / moved_bytes as f64;
        Some(Spread::of(runs.iter().map(|run| each(run.moved_bytes, run.cpu_s)).collect()))
    }

    /// What programs rely on in TCP and do not find here; `None`: nobody looked.
    fn breaks(&self) -> Option<String> {
        let mut tried = self.outcomes.iter().flat_map(|outcome| &outcome.behaviours).peekable();
        tried.peek()?;
        let broken = tried.filter(|behaviour| !behaviour.is_as_tcp);
        let broken: Vec<&str> = broken.map(|behaviour| behaviour.name.as_str()).collect();
        Some(if broken.is_empty() { "nothing".to_owned() } else { broken.join(", ") })
    }

    fn is_proven(&self) -> bool {
        self.outcomes.iter().all(|outcome| outcome.proven)
    }
}

/// What programs have to do, or somebody for them.
fn price(case: &Case) -> &'static str {
    match (case.model, case.path) {
        (Model::Sockets, Path::Rings) => "be started under yasmin run",
        (Model::Sockets, Path::Unix) => "speak Unix sockets, and share a folder",
        (Model::Sockets, Path::Sockmap) => "nothing; root loads BPF for their control group",
        (Model::Sockets, _) => "nothing",
        (Model::Iceoryx2, _) => "be written for iceoryx2",
        _ => "be written for MPI",
    }
}

/// A line for each way and placement, and what no way passes.
pub fn rows(report: &Report) -> Vec<Vec<String>> {
    let all = Peer::all(report);
    let mut rows: Vec<Vec<String>> = Vec::new();
    for peer in &all {
        let tcp = all.iter().find(|tcp| tcp.is(&peer.case.placement, Model::Sockets, Path::Tcp));
        let of =
            |own: Option<&Spread>, tcp: Option<&Spread>, less: bool, show: fn(f64) -> String| {
                let Some(own) = own else { return "-".to_owned() };
                let text = show(own.median);
                let Some(tcp) = tcp.filter(|_| peer.case.path != Path::Tcp) else { return text };
                let times = if less { tcp.median / own.median } else { own.median / tcp.median };
                format!("{text} {}", gain(times))
            };
        let cpu = (peer.cpu_s_gib(), tcp.and_then(Peer::cpu_s_gib));
        let mark = if peer.is_proven() { "" } else { " NOT PROVEN" };
        rows.push(vec![
            format!("{}, {}{mark}", peer.case.placement, way(peer.case)),
            price(peer.case).to_owned(),
            of(peer.latency_ns(), tcp.and_then(Peer::latency_ns), true, figure::nanoseconds),
            of(peer.bytes_s(), tcp.and_then(Peer::bytes_s), false, figure::bytes_s),
            of(peer.connections_s(), tcp.and_then(Peer::connections_s), false, figure::per_second),
            of(cpu.0.as_ref(), cpu.1.as_ref(), true, |cpu_s| figure::nanoseconds(1e9 * cpu_s)),
            peer.breaks().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    if let Some(limits) = &report.limits {
        rows.push(vec![
            "limit: a cache line, two copies".to_owned(),
            String::new(),
            figure::nanoseconds(limits.cache_line_ns),
            figure::bytes_s(limits.two_copies_bytes_s),
            "-".to_owned(),
            "-".to_owned(),
            String::new(),
        ]);
    }
    rows
}

fn draw(report: &Report) -> String {
    let table = table::draw(HEADINGS, 2, rows(report));
    format!(
        "{}\nmedians of {} rounds, and how many times better than plain TCP there; all samples are in \
         the report\n",
        table.trim_fmt(),
        report.rounds
    )
}
