//! `yasmin place evaluate`: how near `adaptive` comes to the best, how much more traffic its
//! plans carry, and how fast it is.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, anyhow};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use yasmin_placement::{
    Adaptive, Chain, Error, Exact, Model, Objective, Plan, Policy, Random, Size, policy, sample,
};

use yasmin_measure::environment::Environment;
use yasmin_measure::figure;
use yasmin_measure::plot::{self, Axis, Chart, Legend, Line, Scale, lines, sheet, short};
use yasmin_measure::spread::Spread;

#[derive(Args)]
pub struct Evaluate {
    /// Hosts drawn by lot, with 2 to 8 nodes and 5 to 40 functions
    #[arg(long, value_name = "N", default_value_t = 1000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub hosts: u64,
    /// Steps after which `exact` gives up and its bound counts
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    pub steps: u64,
    /// The first of the hosts' seeds
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// 20 hosts, few steps, no large ones: seconds instead of minutes
    #[arg(long)]
    pub quick: bool,
    /// Draw time against size
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Print JSON, with every host
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    environment: Environment,
    hosts: Vec<Host>,
    summary: Summary,
    /// Times of one plan, the median of several.
    times: Vec<Time>,
}

#[derive(Serialize)]
struct Host {
    seed: u64,
    nodes: usize,
    functions: usize,
    cpus: usize,
    /// Traffic times distance of `adaptive`, of the best plan known, and what no plan can be
    /// below.
    adaptive: f64,
    best: f64,
    bound: f64,
    proven: bool,
    steps: u64,
    #[serde(flatten)]
    over: Over,
}

/// How many times more traffic passes without loss, in the model, than with the other's plan.
#[derive(Clone, Copy, Default, Serialize)]
struct Over {
    over_random: f64,
    over_first_free: f64,
    over_chain_first: f64,
    /// The same of the best plan known.
    best_over_random: f64,
    best_over_first_free: f64,
    /// The same if every hop were as near as on one node: no plan gives more.
    most_over_random: f64,
    most_over_first_free: f64,
}

#[derive(Serialize)]
struct Summary {
    hosts: usize,
    /// Whose best plan was proven to be the best.
    proven: usize,
    /// Of the proven ones, in percent.
    gap_proven_mean: f64,
    gap_proven_worst: f64,
    /// Of all, against the bound where the best is not proven: no more than this.
    gap_mean: f64,
    gap_worst: f64,
    /// The worst against the best plan known.
    gap_known_worst: f64,
    /// On average.
    #[serde(flatten)]
    over: Over,
}

#[derive(Serialize)]
struct Time {
    nodes: usize,
    functions: usize,
    adaptive_s: f64,
    chain_first_s: f64,
}

const QUICK_HOSTS: u64 = 20;
const QUICK_STEPS: u64 = 500;
/// Nodes and functions of which the time is taken.
const SIZES: [(usize, usize); 9] = [
    (2, 16),
    (4, 32),
    (8, 64),
    (8, 128),
    (16, 256),
    (16, 1000),
    (32, 2500),
    (64, 5000),
    (64, 10_000),
];
const QUICK_SIZES: usize = 5;

pub fn run(options: &Evaluate) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        eprintln!("yasmin place evaluate: this is a debug build: its times mean nothing");
    }
    let (hosts, steps) = match options.quick {
        true => (options.hosts.min(QUICK_HOSTS), options.steps.min(QUICK_STEPS)),
        false => (options.hosts, options.steps),
    };
    let sizes = if options.quick { &SIZES[..QUICK_SIZES] } else { &SIZES };
    // Times first: nothing else runs then.
    let progress =
        ProgressBar::new(hosts + sizes.len() as u64).with_style(yasmin_measure::progress::style());
    let mut times = Vec::new();
    for (nodes, functions) in sizes {
        progress.set_message(format!("{functions} functions on {nodes} nodes"));
        times.push(time(Size { nodes: *nodes, functions: *functions }, options.seed)?);
        progress.inc(1);
    }
    progress.set_message("gap to the best");
    let hosts = judge_all(options.seed, hosts, steps, &progress)?;
    progress.finish_and_clear();
    let summary = summary(&hosts);
    let report = Report { environment: Environment::read(), hosts, summary, times };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", text(&report));
    }
    if let Some(path) = &options.plot {
        let svg = draw(&report)?;
        fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("plot: {}", path.display());
    }
    Ok(())
}

/// Each host by itself, on all CPUs.
fn judge_all(
    seed: u64,
    count: u64,
    steps: u64,
    progress: &ProgressBar,
) -> anyhow::Result<Vec<Host>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return Ok(done);
            }
            done.push(judge(seed.wrapping_add(at), steps)?);
            progress.inc(1);
        }
    };
    let results: Vec<Result<Vec<Host>, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or(Ok(Vec::new()))).collect()
    });
    let mut hosts = Vec::new();
    for result in results {
        hosts.extend(result?);
    }
    if hosts.len() as u64 != count {
        return Err(anyhow!("a thread failed"));
    }
    hosts.sort_by_key(|host| host.seed);
    Ok(hosts)
}

fn judge(seed: u64, steps: u64) -> Result<Host, Error> {
    let size = Size::small(seed);
    let (host, chains) = sample(size, seed);
    let objective = Objective::default();
    let ours = Adaptive { objective }.plan(&host, &chains, None)?;
    let proof = Exact { objective, steps }.prove(&host, &chains, None)?;
    let adaptive = objective.cost(&host, &chains, &ours, None)?.hops;
    let best = objective.cost(&host, &chains, &proof.plan, None)?.hops;
    let over = over(&host, &chains, &ours, &proof.plan, seed)?;
    Ok(Host {
        seed,
        nodes: size.nodes,
        functions: size.functions,
        cpus: host.cpus(),
        adaptive,
        best,
        bound: proof.bound.min(best),
        proven: proof.is_best(),
        steps: proof.steps,
        over,
    })
}

fn over(
    host: &yasmin_placement::Host,
    chains: &[Chain],
    ours: &Plan,
    best: &Plan,
    seed: u64,
) -> Result<Over, Error> {
    let model = Model::of(host);
    let headroom = |plan: &Plan| model.headroom(host, chains, plan);
    let named = |name| headroom(&policy(name, &Default::default())?.plan(host, chains, None)?);
    let random = headroom(&Random { seed }.plan(host, chains, None)?)?;
    let first_free = named("first-free")?;
    let (ours, best) = (headroom(ours)?, headroom(best)?);
    let mut near = host.clone();
    let nearest = host.distance.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    near.distance.iter_mut().flatten().for_each(|distance| *distance = nearest);
    let most = model.headroom(&near, chains, &Adaptive::default().plan(&near, chains, None)?)?;
    Ok(Over {
        over_random: ours / random,
        over_first_free: ours / first_free,
        over_chain_first: ours / named("chain-first")?,
        best_over_random: best / random,
        best_over_first_free: best / first_free,
        most_over_random: most / random,
        most_over_first_free: most / first_free,
    })
}

fn summary(hosts: &[Host]) -> Summary {
    let gap = |host: &Host, to: f64| 100.0 * (host.adaptive / to - 1.0);
    let mean = |values: &mut dyn Iterator<Item = f64>| {
        let all: Vec<f64> = values.collect();
        all.iter().sum::<f64>() / all.len().max(1) as f64
    };
    let worst = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let proven = || hosts.iter().filter(|host| host.proven);
    let to_bound = |host: &Host| gap(host, if host.proven { host.best } else { host.bound });
    let over = |part: fn(&Over) -> f64| mean(&mut hosts.iter().map(|host| part(&host.over)));
    Summary {
        hosts: hosts.len(),
        proven: proven().count(),
        gap_proven_mean: mean(&mut proven().map(|host| gap(host, host.best))),
        gap_proven_worst: worst(&mut proven().map(|host| gap(host, host.best))),
        gap_mean: mean(&mut hosts.iter().map(to_bound)),
        gap_worst: worst(&mut hosts.iter().map(to_bound)),
        gap_known_worst: worst(&mut hosts.iter().map(|host| gap(host, host.best))),
        over: Over {
            over_random: over(|over| over.over_random),
            over_first_free: over(|over| over.over_first_free),
            over_chain_first: over(|over| over.over_chain_first),
            best_over_random: over(|over| over.best_over_random),
            best_over_first_free: over(|over| over.best_over_first_free),
            most_over_random: over(|over| over.most_over_random),
            most_over_first_free: over(|over| over.most_over_first_free),
        },
    }
}

/// The median of several plans.
fn time(size: Size, seed: u64) -> anyhow::Result<Time> {
    let (host, chains) = sample(size, seed);
    let median = |policy: &dyn Policy| -> Result<f64, Error> {
        let mut all = Vec::new();
        for _ in 0..5 {
            let begun = Instant::now();
            policy.plan(&host, &chains, None)?;
            all.push(begun.elapsed().as_secs_f64());
        }
        Ok(Spread::of(all).median)
    };
    Ok(Time {
        nodes: size.nodes,
        functions: size.functions,
        adaptive_s: median(&Adaptive::default())?,
        chain_first_s: median(&yasmin_placement::ChainFirst)?,
    })
}

fn text(report: &Report) -> String {
    let all = &report.summary;
    let mut text = format!(
        "{}\n\ngap of adaptive to the best plan, {} hosts\n  \
         {} proven: mean {:.2} %, worst {:.2} %\n  \
         all, against proven bounds: mean at most {:.2} %, worst at most {:.2} %\n  \
         all, against the best plan known: worst {:.2} %\n\
         traffic without loss, in the model, on average\n  \
         {:.2} times random's, {:.2} times first-free's, {:.2} times chain-first's\n  \
         the best plan known: {:.2} times random's, {:.2} times first-free's\n  \
         were every hop local: {:.2} times random's, {:.2} times first-free's\n\
         one plan\n",
        report.environment.line(),
        all.hosts,
        all.proven,
        all.gap_proven_mean,
        all.gap_proven_worst,
        all.gap_mean,
        all.gap_worst,
        all.gap_known_worst,
        all.over.over_random,
        all.over.over_first_free,
        all.over.over_chain_first,
        all.over.best_over_random,
        all.over.best_over_first_free,
        all.over.most_over_random,
        all.over.most_over_first_free,
    );
    for time in &report.times {
        text += &format!(
            "  {} functions on {} nodes: {} (chain-first {})\n",
            time.functions,
            time.nodes,
            figure::nanoseconds(1e9 * time.adaptive_s),
            figure::nanoseconds(1e9 * time.chain_first_s),
        );
    }
    text
}

fn draw(report: &Report) -> Result<String, plot::Error> {
    let line = |at: usize, name: &str, time: fn(&Time) -> f64| {
        let points = report.times.iter().map(|one| (one.functions as f64, 1e3 * time(one)));
        Line::new(name, plot::colour(at), points)
    };
    let all = [
        line(0, "adaptive", |one| one.adaptive_s),
        line(1, "chain-first", |one| one.chain_first_s),
    ];
    let chart = Chart {
        title: "time of one plan, 2 to 64 nodes",
        x: Axis { name: "functions", scale: Scale::Decades, show: &short },
        y: Axis { name: "ms", scale: Scale::Decades, show: &short },
        legend: Legend::UpperLeft,
    };
    sheet(1, 1, (720, 440), |_, area| lines(area, &chart, &all))
}
