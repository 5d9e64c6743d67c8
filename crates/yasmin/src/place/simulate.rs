//! `yasmin place simulate`: the source's experiment in the queueing model, by policy.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use indicatif::ProgressBar;
use serde::Serialize;
use yasmin_placement::simulation::{Experiment, Outcome, Pattern, SERVICES, Start, contrast};
use yasmin_placement::{Objective, POLICIES, Settings, policy};

use yasmin_measure::plot::{self, Axis, Chart, Legend, Line, Scale, bars, lines, sheet, short};
use yasmin_measure::table;

#[derive(Args)]
pub struct Simulate {
    /// Policies to compare; first-free leaves every function where it began
    #[arg(long, value_name = "POLICY", value_delimiter = ',')]
    #[arg(default_values = ["first-free", "numad-like", "chain-first", "adaptive"])]
    #[arg(value_parser = POLICIES)]
    pub policy: Vec<String>,
    /// Seconds of each run
    #[arg(long, value_name = "S", default_value_t = Experiment::default().seconds)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub seconds: u32,
    /// Seconds between changes of traffic
    #[arg(long, value_name = "S", default_value_t = Experiment::default().change_s)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub change: u32,
    /// How wrong the counters may be, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 100.0 * Experiment::default().noise)]
    pub noise: f64,
    /// Equal seeds give equal traffic
    #[arg(long, default_value_t = Experiment::default().seed)]
    pub seed: u64,
    /// What a move costs: a share of what one local hop of the function's traffic costs
    #[arg(long, value_name = "SHARE", default_value_t = Objective::default().moves.share)]
    pub move_price: f64,
    /// Draw latency and loss by rate, by policy and over time
    #[arg(long, value_name = "DIR")]
    pub plot: Option<PathBuf>,
    /// Print JSON, with the mean latency of every second
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report {
    experiment: Experiment,
    published: Vec<Published>,
    outcomes: Vec<Outcome>,
}

/// A figure of the source, and what the model gives for it.
#[derive(Serialize)]
struct Published {
    what: &'static str,
    source: &'static str,
    model: String,
}

pub fn run(options: &Simulate) -> anyhow::Result<()> {
    if !(0.0..100.0).contains(&options.noise) {
        bail!("--noise {}: give 0 to less than 100 percent", options.noise);
    }
    let experiment = Experiment {
        seed: options.seed,
        seconds: options.seconds,
        change_s: options.change,
        noise: options.noise / 100.0,
        ..Experiment::default()
    };
    let settings =
        Settings { objective: Objective::with_move_share(options.move_price), seed: options.seed };
    let runs = Pattern::ALL.len() * Start::ALL.len() * options.policy.len();
    let progress = ProgressBar::new(runs as u64 * u64::from(experiment.seconds))
        .with_style(yasmin_measure::progress::style());
    let mut outcomes = Vec::new();
    for pattern in Pattern::ALL {
        for start in Start::ALL {
            for name in &options.policy {
                let at = format!("traffic on {}, {}, {name}", pattern.name(), start.name());
                progress.set_message(at);
                let policy = policy(name, &settings)?;
                outcomes.push(experiment.run(&*policy, start, pattern, || progress.inc(1))?);
            }
        }
    }
    progress.finish_and_clear();
    let report = Report { experiment, published: published()?, outcomes };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", text(&report));
    }
    if let Some(folder) = &options.plot {
        draw(&report, folder)?;
    }
    Ok(())
}

/// The extremes over the three services, as `1.3 to 1.4`.
fn ratios(rate: f64) -> anyhow::Result<String> {
    let mut all = Vec::new();
    for length in SERVICES {
        let (good, bad) = contrast(length, rate)?;
        all.push(bad.latency_ns / good.latency_ns);
    }
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let most = all.iter().copied().fold(0.0, f64::max);
    Ok(format!("{least:.2} to {most:.2} times"))
}

fn first_loss(bad: bool) -> anyhow::Result<f64> {
    for tenth in 10..200 {
        let rate = f64::from(tenth) / 10.0;
        let (good, worse) = contrast(5, rate)?;
        if (if bad { worse } else { good }).passed < 0.999 {
            return Ok(rate);
        }
    }
    bail!("the model never loses a packet")
}

fn published() -> anyhow::Result<Vec<Published>> {
    let (near, far) = (first_loss(false)?, first_loss(true)?);
    Ok(vec![
        Published {
            what: "latency, every hop remote, 1 Gbit/s",
            source: "1.3 to 1.4 times",
            model: ratios(1.0)?,
        },
        Published {
            what: "latency, every hop remote, 4 Gbit/s",
            source: "2 to 3 times",
            model: ratios(4.0)?,
        },
        Published {
            what: "loss begins, every hop remote",
            source: "1 Gbit/s earlier",
            model: format!("at {far:.1} instead of {near:.1} Gbit/s"),
        },
    ])
}

fn text(report: &Report) -> String {
    let mut text = String::from("the model against what was published\n");
    let published = report.published.iter();
    let rows = published.map(|one| vec![one.what.into(), one.source.into(), one.model.clone()]);
    let table = table::draw(["", "source", "model"], 3, rows);
    text += &format!("{table}\n");
    for pattern in Pattern::ALL {
        let who = match pattern {
            Pattern::One => "one service at a time",
            Pattern::All => "all services",
        };
        let rows = report.outcomes.iter().filter(|one| one.pattern == pattern).map(|one| {
            vec![
                one.start.name().to_owned(),
                one.policy.clone(),
                format!("{:.2} us", one.mean_latency_us),
                format!("{:.2} us", one.spread_us),
                format!("{:.3} %", 100.0 * one.dropped),
                one.moves.to_string(),
                one.replans.to_string(),
            ]
        });
        let headings = ["start", "policy", "latency", "spread", "dropped", "moves", "re-plans"];
        let table = table::draw(headings, 2, rows);
        text += &format!(
            "\ntraffic on {who}, {} s, changing every {} s\n{table}\n",
            report.experiment.seconds, report.experiment.change_s
        );
    }
    text
}

fn draw(report: &Report, folder: &std::path::Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let files = [
        ("rate.svg", by_rate()?),
        ("latency.svg", by_policy(report, "latency", "us", |one| one.mean_latency_us)?),
        ("spread.svg", by_policy(report, "spread of latency", "us", |one| one.spread_us)?),
        ("dropped.svg", by_policy(report, "packets lost", "%", |one| 100.0 * one.dropped)?),
        ("time.svg", over_time(report)?),
    ];
    for (name, svg) in files {
        let path = folder.join(name);
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    eprintln!("plots: {}", folder.display());
    Ok(())
}

/// Latency and loss of each service against its rate: near the card, and with every hop remote.
fn by_rate() -> anyhow::Result<String> {
    sheet(2 * SERVICES.len(), SERVICES.len(), (440, 340), |at, area| {
        let length = SERVICES[at % SERVICES.len()];
        let loss = at >= SERVICES.len();
        let mut near = Vec::new();
        let mut far = Vec::new();
        for tenth in 10..=60 {
            let rate = f64::from(tenth) / 10.0;
            let (good, bad) = contrast(length, rate)?;
            let value = |fare: yasmin_placement::Fare| match loss {
                true => 100.0 * (1.0 - fare.passed),
                false => fare.latency_ns / 1e3,
            };
            near.push((rate, value(good)));
            far.push((rate, value(bad)));
        }
        let title = format!("{length} functions, {}", if loss { "loss" } else { "latency" });
        let y = if loss { "% lost" } else { "us" };
        let scale = if loss { Scale::Linear } else { Scale::Decades };
        let chart = Chart {
            title: &title,
            x: Axis { name: "Gbit/s", scale: Scale::Linear, show: &short },
            y: Axis { name: y, scale, show: &short },
            legend: Legend::UpperLeft,
        };
        let all = [
            Line::new("every hop remote", plot::colour(0), far),
            Line::new("near the card", plot::colour(1), near),
        ];
        Ok(lines(area, &chart, &all)?)
    })
}

fn by_policy(
    report: &Report,
    what: &str,
    unit: &str,
    value: impl Fn(&Outcome) -> f64,
) -> Result<String, plot::Error> {
    let names = policies(report);
    let starts: Vec<&str> = Start::ALL.iter().map(|start| start.name()).collect();
    sheet(Pattern::ALL.len(), Pattern::ALL.len(), (560, 380), |at, area| {
        let pattern = Pattern::ALL[at];
        let title = format!("{what}, traffic on {}", pattern.name());
        bars(area, &title, unit, &starts, &names, |start, bar| {
            let same = |one: &&Outcome| {
                one.pattern == pattern && one.start == Start::ALL[start] && one.policy == names[bar]
            };
            report.outcomes.iter().find(same).map_or(0.0, &value)
        })
    })
}

/// The first two minutes of the runs that began alternating.
fn over_time(report: &Report) -> Result<String, plot::Error> {
    sheet(Pattern::ALL.len(), 1, (1100, 360), |at, area| {
        let pattern = Pattern::ALL[at];
        let chosen = report
            .outcomes
            .iter()
            .filter(|one| one.pattern == pattern && one.start == Start::Alternating);
        let line = |(at, one): (usize, &Outcome)| {
            let points = one.series_us.iter().take(120).enumerate();
            Line::new(&one.policy, plot::colour(at), points.map(|(s, us)| (s as f64, *us)))
        };
        let title = format!("latency from an alternating start, traffic on {}", pattern.name());
        let chart = Chart {
            title: &title,
            x: Axis { name: "s", scale: Scale::Linear, show: &short },
            y: Axis { name: "us", scale: Scale::Decades, show: &short },
            legend: Legend::UpperLeft,
        };
        lines(area, &chart, &chosen.enumerate().map(line).collect::<Vec<Line>>())
    })
}

fn policies(report: &Report) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for one in &report.outcomes {
        if !names.contains(&one.policy) {
            names.push(one.policy.clone());
        }
    }
    names
}
