//! Chains, and if wanted a host, from a TOML or JSON file.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, bail};
use serde::Deserialize;
use yasmin_placement::{Chain, ChainEnd, FunctionId, Host, HostNode, NodeId, Plan, Seat, Traffic};
use yasmin_topology::{CpuId, parse_cpus};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    host: Option<HostFile>,
    #[serde(rename = "chain", alias = "chains")]
    chains: Vec<ChainFile>,
    /// Where functions are now: the CPU of each.
    #[serde(default)]
    current: BTreeMap<String, u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HostFile {
    /// The free CPUs of each node, as in `0-5,8`.
    free: Vec<String>,
    distances: Option<Vec<Vec<f64>>>,
    #[serde(default)]
    nic_node: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChainFile {
    name: Option<String>,
    functions: Vec<String>,
    bytes_s: Option<f64>,
    packets_s: Option<f64>,
    #[serde(default)]
    entry: EndFile,
    #[serde(default)]
    exit: EndFile,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum EndFile {
    #[default]
    Nic,
    Function,
    Node(u32),
}

/// What is to be planned for.
#[derive(Debug)]
pub struct Scenario {
    pub host: Option<Host>,
    pub chains: Vec<Chain>,
    /// By their ids.
    pub names: Vec<String>,
    current: BTreeMap<FunctionId, CpuId>,
}

impl Scenario {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let json = path.extension().is_some_and(|extension| extension == "json");
        Self::parse(&text, json).with_context(|| path.display().to_string())
    }

    pub fn parse(text: &str, json: bool) -> anyhow::Result<Self> {
        let file = if json { from_json(text)? } else { from_toml(text)? };
        file.scenario()
    }

    /// The present seats, on CPUs of `host`; these CPUs are free for the plan.
    pub fn current(
        &self,
        host: &mut Host,
        node_of: impl Fn(CpuId) -> Option<NodeId>,
    ) -> anyhow::Result<Option<Plan>> {
        let mut plan = Plan::default();
        for (id, cpu) in &self.current {
            let node = host.node_of(*cpu).or_else(|| node_of(*cpu));
            let Some(node) = node else {
                bail!("'{}' is said to be on CPU {cpu}, which the host has not", self.name(*id));
            };
            host.release(node, *cpu)?;
            if plan.seats.values().any(|seat| seat.cpu == *cpu) {
                plan.shared.insert(*id);
            }
            plan.seats.insert(*id, Seat { cpu: *cpu, node });
        }
        Ok((!plan.seats.is_empty()).then_some(plan))
    }

    pub fn name(&self, id: FunctionId) -> &str {
        self.names.get(id.0 as usize).map_or("", String::as_str)
    }
}

/// One line: where, which field, and what is wrong.
fn from_toml(text: &str) -> anyhow::Result<File> {
    let complain = |span: Option<std::ops::Range<usize>>, message: &str, field: &str| {
        let line = span.and_then(|span| text.get(..span.start));
        let line = line.map(|before| before.matches('\n').count() + 1);
        let line = line.map_or(String::new(), |line| format!("line {line}: "));
        anyhow::anyhow!("{line}{field}{}", message.replace('\n', " ").trim())
    };
    let parsed = toml::Deserializer::parse(text)
        .map_err(|error| complain(error.span(), error.message(), ""))?;
    serde_path_to_error::deserialize(parsed).map_err(|error| {
        let field = format!("{}: ", error.path());
        complain(error.inner().span(), error.inner().message(), &field)
    })
}

fn from_json(text: &str) -> anyhow::Result<File> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let file = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        // The message ends with line and column.
        anyhow::anyhow!("{}: {}", error.path(), error.inner())
    })?;
    reader.end()?;
    Ok(file)
}

impl File {
    fn scenario(self) -> anyhow::Result<Scenario> {
        let mut names = Vec::new();
        let mut ids: BTreeMap<String, FunctionId> = BTreeMap::new();
        let mut chains = Vec::new();
        for (at, chain) in self.chains.into_iter().enumerate() {
            let name = chain.name.unwrap_or_else(|| chain.functions.join(" "));
            let traffic = match (chain.bytes_s, chain.packets_s) {
                (Some(rate), None) => Traffic::bytes_s(rate),
                (None, Some(rate)) => Traffic::packets_s(rate),
                _ => bail!("chain[{at}] '{name}': give either bytes_s or packets_s"),
            };
            let mut functions = Vec::new();
            for function in chain.functions {
                let id = *ids.entry(function.clone()).or_insert_with(|| {
                    names.push(function);
                    FunctionId(names.len() as u32 - 1)
                });
                functions.push(id);
            }
            let end = |end| match end {
                EndFile::Nic => ChainEnd::Nic,
                EndFile::Function => ChainEnd::Function,
                EndFile::Node(node) => ChainEnd::Node(NodeId(node)),
            };
            let (entry, exit) = (end(chain.entry), end(chain.exit));
            chains.push(Chain { name, functions, traffic, entry, exit });
        }
        let mut current = BTreeMap::new();
        for (name, cpu) in self.current {
            let Some(id) = ids.get(&name) else {
                bail!("current: '{name}' is in no chain");
            };
            current.insert(*id, CpuId(cpu));
        }
        let host = self.host.map(HostFile::host).transpose()?;
        Ok(Scenario { host, chains, names, current })
    }
}

impl HostFile {
    fn host(self) -> anyhow::Result<Host> {
        let mut nodes = Vec::new();
        for (at, list) in self.free.iter().enumerate() {
            let free = parse_cpus(list).with_context(|| format!("host.free[{at}]"))?;
            nodes.push(HostNode { id: NodeId(at as u32), free: free.into_iter().collect() });
        }
        let between = |from: usize, to: usize| if from == to { 10.0 } else { 21.0 };
        let row = |from| (0..nodes.len()).map(|to| between(from, to)).collect();
        let distance = self.distances.unwrap_or_else(|| (0..nodes.len()).map(row).collect());
        let host = Host { nodes, distance, nic: NodeId(self.nic_node) };
        host.check().context("host")?;
        Ok(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[host]
free = ["0-4", "5-10"]

[[chain]]
name = "web"
functions = ["router", "firewall", "balancer"]
bytes_s = 4e8

[[chain]]
functions = ["router", "cache"]
bytes_s = 1e8
entry = { node = 1 }
exit = "function"

[current]
router = 6
"#;

    #[test]
    fn names_become_functions() {
        let scenario = Scenario::parse(GOOD, false).unwrap();
        assert_eq!(scenario.names, ["router", "firewall", "balancer", "cache"]);
        assert_eq!(scenario.chains[1].functions, [FunctionId(0), FunctionId(3)]);
        assert_eq!(scenario.chains[1].name, "router cache");
        assert_eq!(scenario.chains[1].entry, ChainEnd::Node(NodeId(1)));
        let mut host = scenario.host.clone().unwrap();
        let current = scenario.current(&mut host, |_| None).unwrap().unwrap();
        assert_eq!(current.node(FunctionId(0)), Some(NodeId(1)));
    }

    #[track_caller]
    fn complains(text: &str, json: bool, of: &[&str]) {
        let error = format!("{:#}", Scenario::parse(text, json).unwrap_err());
        assert!(of.iter().all(|part| error.contains(part)), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn toml_errors_name_line_and_field() {
        complains(&GOOD.replace("4e8", "\"much\""), false, &["line 8", "chain[0].bytes_s", "much"]);
        complains(&GOOD.replace("name =", "nome ="), false, &["line 6", "nome"]);
        complains(&GOOD.replace("[host]", "[host"), false, &["line 2"]);
        complains(&GOOD.replace("0-4", "4-0"), false, &["host.free[0]", "4-0"]);
        complains(&GOOD.replace("bytes_s = 1e8", ""), false, &["chain[1]", "bytes_s"]);
        complains(&GOOD.replace("router = 6", "ruter = 6"), false, &["ruter"]);
        complains(&GOOD.replace("\"5-10\"", "\"4-10\""), false, &["node 1"]);
    }

    #[test]
    fn json_errors_name_line_and_field() {
        let good = "{\"chains\": [\n {\"functions\": [\"a\"],\n  \"packets_s\": 5}]}";
        assert_eq!(Scenario::parse(good, true).unwrap().names, ["a"]);
        complains(&good.replace('5', "true"), true, &["line 3", "chains[0].packets_s"]);
        complains(&good.replace("]}", "]"), true, &["line 3"]);
        complains(&good.replace("]}", "]} x"), true, &["line 3"]);
    }
}
