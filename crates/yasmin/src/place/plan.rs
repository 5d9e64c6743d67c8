//! `yasmin place plan`: where functions should go, by one policy or all.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use comfy_table::Table;
use serde::Serialize;
use yasmin_placement::{
    Chain, Error, Host, Model, NodeId, Objective, POLICIES, Policy, Settings, policy,
};
use yasmin_topology::{Machine, format_cpus, parse_cpus};

use super::scenario::Scenario;
use crate::topology::Source;
use yasmin_measure::{figure, table};

#[derive(Args)]
pub struct Plan {
    /// Chains and their traffic, TOML or JSON; also a host, and where functions are now
    #[arg(value_name = "FILE")]
    pub scenario: PathBuf,
    /// How it is decided where functions go
    #[arg(long, value_name = "POLICY", default_value = "adaptive")]
    #[arg(value_parser = POLICIES)]
    pub policy: String,
    /// Compare all policies
    #[arg(long, conflicts_with = "policy")]
    pub compare: bool,
    #[command(flatten)]
    pub source: Source,
    /// The network card, or the number of its node
    #[arg(long, value_name = "CARD|NODE")]
    pub nic: Option<String>,
    /// Use only these CPUs, whoever else is pinned to them
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Use all hyper-threads of a core
    #[arg(long)]
    pub smt: bool,
    /// What a move costs: a share of what one local hop of the function's traffic costs
    #[arg(long, value_name = "SHARE", default_value_t = Objective::default().moves.share)]
    pub move_price: f64,
    /// For the policy random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    host: &'a Host,
    plans: Vec<Planned>,
}

#[derive(Serialize)]
struct Planned {
    policy: String,
    /// Traffic times distance.
    hops: f64,
    moves_price: f64,
    /// How many times the traffic could pass before the first packet is lost, in the model.
    headroom: f64,
    moves: usize,
    seats: Vec<Seated>,
}

#[derive(Serialize)]
struct Seated {
    function: String,
    node: u32,
    cpu: u32,
    /// There was no CPU left for it alone.
    shared: bool,
    /// Where it is now, if it is to move.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u32>,
}

pub fn run(options: &Plan) -> anyhow::Result<()> {
    let scenario = Scenario::read(&options.scenario)?;
    let machine = match &scenario.host {
        Some(_) if options.source.given() => {
            bail!("{} describes a host itself", options.scenario.display())
        }
        Some(_) => None,
        None => Some(options.source.machine()?),
    };
    let mut host = match (&scenario.host, &machine) {
        (Some(host), _) => restricted(host.clone(), options)?,
        (None, Some(machine)) => of_machine(machine, options)?,
        (None, None) => bail!("there is no host"),
    };
    let node_of = |cpu| machine.as_ref()?.cpu(cpu).map(|cpu| cpu.node);
    let current = scenario.current(&mut host, node_of)?;

    let objective = Objective::with_move_share(options.move_price);
    let settings = Settings { objective, seed: options.seed };
    let names: Vec<&str> =
        if options.compare { POLICIES.to_vec() } else { vec![options.policy.as_str()] };
    let mut plans = Vec::new();
    for name in names {
        let policy = policy(name, &settings)?;
        match planned(&*policy, &host, &scenario, current.as_ref(), &objective) {
            Ok(planned) => plans.push(planned),
            // The yardstick is not for every host.
            Err(error) if options.compare => eprintln!("yasmin place plan: {name}: {error}"),
            Err(error) => return Err(error.into()),
        }
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(&Report { host: &host, plans })?);
    } else if options.compare {
        println!("{}", comparison(&plans));
    } else if let [plan] = plans.as_slice() {
        print!("{}", picture(plan, &host, &scenario));
    }
    Ok(())
}

fn of_machine(machine: &Machine, options: &Plan) -> anyhow::Result<Host> {
    let mut machine = machine.clone();
    if let Some(list) = &options.cpus {
        let wanted = parse_cpus(list)?;
        if let Some(missing) = wanted.iter().find(|cpu| machine.cpu(**cpu).is_none()) {
            bail!("--cpus: the machine has no CPU {missing}");
        }
        machine.allowed = wanted;
        machine.isolated.clear();
        machine.pinned.clear();
    }
    let nic = card(options.nic.as_deref(), &machine)?;
    Host::of(&machine, nic, options.smt).context("the machine")
}

/// The node of the card that was named, or of the only one that says.
fn card(wanted: Option<&str>, machine: &Machine) -> anyhow::Result<NodeId> {
    if let Some(wanted) = wanted {
        if let Ok(node) = wanted.parse() {
            return Ok(NodeId(node));
        }
        let Some(nic) = machine.nic(wanted) else {
            let names: Vec<&str> = machine.nics.iter().map(|nic| nic.name.as_str()).collect();
            bail!("--nic: there is no card '{wanted}'; there are: {}", names.join(", "));
        };
        let Some(node) = nic.node else {
            bail!("--nic: the machine does not say at which node {wanted} is; give the node");
        };
        return Ok(node);
    }
    let known = machine.nics.iter().find_map(|nic| nic.node);
    Ok(known.unwrap_or_else(|| machine.nodes[0].id))
}

fn restricted(mut host: Host, options: &Plan) -> anyhow::Result<Host> {
    if let Some(list) = &options.cpus {
        let wanted = parse_cpus(list)?;
        for node in &mut host.nodes {
            node.free.retain(|cpu| wanted.contains(cpu));
        }
    }
    if let Some(nic) = &options.nic {
        let Ok(node) = nic.parse() else { bail!("--nic: '{nic}' is no node of the file's host") };
        host.nic = NodeId(node);
    }
    host.check()?;
    Ok(host)
}

fn planned(
    policy: &dyn Policy,
    host: &Host,
    scenario: &Scenario,
    current: Option<&yasmin_placement::Plan>,
    objective: &Objective,
) -> Result<Planned, Error> {
    let chains: &[Chain] = &scenario.chains;
    let plan = policy.plan(host, chains, current)?;
    let cost = objective.cost(host, chains, &plan, current)?;
    let before = |id| current.and_then(|current| current.seat(id));
    let seats = plan.seats.iter().map(|(id, seat)| Seated {
        function: scenario.name(*id).to_owned(),
        node: seat.node.0,
        cpu: seat.cpu.0,
        shared: plan.shared.contains(id),
        from: before(*id).filter(|before| before != seat).map(|before| before.cpu.0),
    });
    let seats: Vec<Seated> = seats.collect();
    Ok(Planned {
        policy: policy.name().to_owned(),
        hops: cost.hops,
        moves_price: cost.moves,
        headroom: Model::of(host).headroom(host, chains, &plan)?,
        moves: seats.iter().filter(|seat| seat.from.is_some()).count(),
        seats,
    })
}

fn comparison(plans: &[Planned]) -> Table {
    let best = plans.iter().map(|plan| plan.hops).fold(f64::INFINITY, f64::min);
    let rows = plans.iter().map(|plan| {
        let over = if best > 0.0 { 100.0 * (plan.hops / best - 1.0) } else { 0.0 };
        vec![
            plan.policy.clone(),
            figure::per_second(plan.hops),
            format!("+{over:.1} %"),
            plan.moves.to_string(),
            format!("{:.2}x", plan.headroom),
        ]
    });
    let headings = ["policy", "traffic x distance", "against the best", "moves", "headroom"];
    table::draw(headings, 1, rows)
}

/// A line for each node with who is on it, then what it costs and who has to share.
fn picture(plan: &Planned, host: &Host, scenario: &Scenario) -> String {
    let mut text = String::new();
    for node in &host.nodes {
        let here: Vec<String> = plan
            .seats
            .iter()
            .filter(|seat| seat.node == node.id.0)
            .map(|seat| {
                let from = seat.from.map_or(String::new(), |from| format!(" (from {from})"));
                format!("{} on {}{from}", seat.function, seat.cpu)
            })
            .collect();
        let card = if node.id == host.nic { ", the card" } else { "" };
        let cpus = format_cpus(&node.free);
        text += &format!("node {} (CPUs {cpus}{card}): {}\n", node.id, here.join(", "));
    }
    let spare = host.cpus().saturating_sub(plan.seats.len());
    text += &format!(
        "{}: traffic x distance {}, {} moves, {spare} CPUs to spare, {:.2}x this traffic would \
         pass\n",
        plan.policy,
        figure::per_second(plan.hops),
        plan.moves,
        plan.headroom
    );
    let shared: Vec<&str> =
        plan.seats.iter().filter(|seat| seat.shared).map(|seat| &*seat.function).collect();
    if !shared.is_empty() {
        text += &format!(
            "{} functions for {} CPUs: {} share a CPU\n",
            scenario.names.len(),
            host.cpus(),
            shared.join(", ")
        );
    }
    text
}
