//! `yasmin place chains`: who talks to whom, how much, and where that is known from.

use std::time::Duration;

use anyhow::ensure;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use yasmin_watch::apply;
use yasmin_watch::discover;
use yasmin_watch::observer::Observer;

use super::{cli, sources};

#[derive(Serialize)]
struct Answer {
    functions: Vec<Row>,
    chains: Vec<Chain>,
    edges: Vec<yasmin_watch::rate::Edge>,
    troubles: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    function: yasmin_watch::function::Function,
    /// Where it runs now.
    cpu: Option<u32>,
}

#[derive(Serialize)]
struct Chain {
    entry: Option<String>,
    functions: Vec<String>,
    exit: Option<String>,
    rate_bytes_s: f64,
    origins: Vec<String>,
}

pub fn run(options: &cli::Chains) -> anyhow::Result<()> {
    ensure!(options.seconds > 0.0 && options.seconds < 1e6, "--seconds: more than 0 are needed");
    let overrides = sources::overrides(options.sources.overrides.as_deref())?;
    let mut observer = Observer::new(sources::open(&options.sources)?).at_once();
    let mut troubles = observer.observe(&overrides).troubles;
    std::thread::sleep(Duration::from_secs_f64(options.seconds));
    troubles.extend(observer.observe(&overrides).troubles);
    let (functions, edges) = (observer.functions(), observer.edges());
    let (left, mut chains) = overrides.apply_to_edges(functions, edges);
    let listed: Vec<String> = chains.iter().flat_map(|chain| chain.functions.clone()).collect();
    let rest = functions.iter().map(|one| one.name.as_str());
    let rest = rest.filter(|name| !listed.iter().any(|known| known == name));
    chains.extend(discover::chains(&left, rest));
    let places = apply::whereabouts(functions);
    let answer = Answer {
        functions: functions
            .iter()
            .map(|function| Row {
                cpu: places.get(&function.name).map(|cpu| cpu.0),
                function: function.clone(),
            })
            .collect(),
        chains: chains
            .into_iter()
            .map(|chain| Chain {
                entry: chain.entry,
                functions: chain.functions,
                exit: chain.exit,
                rate_bytes_s: chain.rate,
                origins: chain.origins,
            })
            .collect(),
        edges: edges.to_vec(),
        troubles,
    };
    if options.json {
        println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(());
    }
    answer.troubles.iter().for_each(|trouble| eprintln!("yasmin: {trouble}"));
    if answer.functions.is_empty() {
        println!("No functions found: no broker with connections, no namespaces, no DPDK program.");
        return Ok(());
    }
    println!("{}", answer.table());
    Ok(())
}

impl Answer {
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(["chain", "functions (CPU)", "bytes/s", "known from"]);
        for (at, chain) in self.chains.iter().enumerate() {
            let cpu = |name: &str| {
                let row = self.functions.iter().find(|row| row.function.name == name);
                row.and_then(|row| row.cpu).map_or("?".into(), |cpu| cpu.to_string())
            };
            let mut parts: Vec<String> = chain.entry.iter().cloned().collect();
            parts.extend(chain.functions.iter().map(|name| format!("{name} ({})", cpu(name))));
            parts.extend(chain.exit.iter().cloned());
            let rate = indicatif::HumanBytes(chain.rate_bytes_s as u64).to_string();
            let from = chain.origins.join("\n");
            table.add_row([(at + 1).to_string(), parts.join(" > "), rate, from]);
        }
        table
    }
}
