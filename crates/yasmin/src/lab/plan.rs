//! What is measured: experiments from a file, and the cases that they make.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::placement::{Placement, is_word};
use super::way::{Kernel, Model, Path};

pub const FULL: &str = include_str!("../../../../lab/full.toml");
pub const QUICK: &str = include_str!("../../../../lab/quick.toml");
pub const PEERS: &str = include_str!("../../../../lab/peers.toml");

/// A plan file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    pub rounds: u16,
    /// Longest time for one run: what takes longer has failed.
    limit_s: u64,
    #[serde(rename = "experiment")]
    experiments: Vec<Experiment>,
}

/// Every combination that can be of what it lists.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    name: String,
    kernel: Kernel,
    arguments: Vec<String>,
    models: Vec<Model>,
    workers: Vec<u32>,
    placements: Vec<String>,
    /// All that there are, if not given.
    paths: Option<Vec<Path>>,
    /// Where the plan's is not enough.
    limit_s: Option<u64>,
}

/// One measurement: a kernel, where and how it runs.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// experiment/placement/model/path/workers
    pub name: String,
    pub experiment: String,
    pub kernel: Kernel,
    pub arguments: Vec<String>,
    pub placement: String,
    pub model: Model,
    pub path: Path,
    pub workers: u32,
    pub limit_s: u64,
}

const MOST_WORKERS: u32 = 1024;

impl Plan {
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let plan: Self = serde_path_to_error::deserialize(toml::Deserializer::parse(text)?)?;
        if plan.rounds == 0 {
            bail!("rounds: 0 rounds measure nothing");
        }
        Ok(plan)
    }

    /// All experiments on these placements, not on their own.
    pub fn place(&mut self, placements: &[String]) {
        for experiment in &mut self.experiments {
            experiment.placements = placements.to_vec();
        }
    }

    /// # Errors
    /// Names the experiment that makes no sense, and why.
    pub fn cases(&self, placements: &BTreeMap<String, Placement>) -> anyhow::Result<Vec<Case>> {
        let mut cases: Vec<Case> = Vec::new();
        for experiment in &self.experiments {
            let name = &experiment.name;
            if !is_word(name) {
                bail!("experiment {name:?}: its name may have letters, digits and - only");
            }
            let made = experiment
                .cases(placements, self.limit_s)
                .with_context(|| format!("experiment {name}"))?;
            cases.extend(made);
        }
        if cases.is_empty() {
            bail!("no combination of models, paths, workers and placements can be");
        }
        for (nth, case) in cases.iter().enumerate() {
            if cases[..nth].iter().any(|other| other.name == case.name) {
                bail!("two measurements are called {}", case.name);
            }
        }
        Ok(cases)
    }
}

impl Experiment {
    fn cases(
        &self,
        placements: &BTreeMap<String, Placement>,
        limit_s: u64,
    ) -> anyhow::Result<Vec<Case>> {
        let mut cases = Vec::new();
        if let Some(workers) = self.workers.iter().find(|workers| **workers > MOST_WORKERS) {
            bail!("{workers} workers are more than {MOST_WORKERS}");
        }
        for place in &self.placements {
            let names = || placements.keys().cloned().collect::<Vec<_>>().join(", ");
            let placement = placements
                .get(place)
                .with_context(|| format!("there is no placement {place}; there are {}", names()))?;
            for &model in &self.models {
                if !self.kernel.models().contains(&model) {
                    bail!("there is no {} in {}", self.kernel.name(), model.name());
                }
                if model.is_mpi() && !placement.launches {
                    continue;
                }
                let machines = placement.machines.len();
                let paths = model.paths(machines).iter().copied();
                let wanted = |path: &Path| {
                    self.paths.as_ref().is_none_or(|all| all.contains(path))
                        && match path {
                            Path::Sockmap => placement.is_in_reach(),
                            Path::Segments => placement.has_segments(),
                            Path::Rings => placement.has_rings(),
                            _ => true,
                        }
                };
                for path in paths.filter(wanted) {
                    let workers = self.workers.iter().copied();
                    let workers = workers
                        .filter(|workers| model.takes(self.kernel, machines, path, *workers));
                    cases.extend(
                        workers.map(|workers| self.case(place, model, path, workers, limit_s)),
                    );
                }
            }
        }
        Ok(cases)
    }

    fn case(&self, placement: &str, model: Model, path: Path, workers: u32, limit_s: u64) -> Case {
        let (model_name, path_name) = (model.name(), path.name());
        Case {
            name: format!("{}/{placement}/{model_name}/{path_name}/{workers}", self.name),
            experiment: self.name.clone(),
            kernel: self.kernel,
            arguments: self.arguments.clone(),
            placement: placement.to_owned(),
            model,
            path,
            workers,
            limit_s: self.limit_s.unwrap_or(limit_s),
        }
    }
}

impl Case {
    /// Whether all words of `wanted`, as in `heat/rings`, are in the name.
    pub fn has(&self, wanted: &str) -> bool {
        wanted.split('/').all(|word| self.name.split('/').any(|part| part == word))
    }

    /// Programs that it needs, and the Debian packages that have them.
    pub fn needs(&self) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
        self.model.needs().iter().chain(self.path.needs())
    }

    /// What is the same for all numbers of workers.
    pub fn series(&self) -> String {
        format!("{}, {}, {}", self.placement, self.model.describe(), self.path.describe())
    }
}

/// Those of `cases` that any of `only` names; all if it is empty.
pub fn choose(cases: Vec<Case>, only: &[String]) -> anyhow::Result<Vec<Case>> {
    for wanted in only {
        if !cases.iter().any(|case| case.has(wanted)) {
            bail!("no measurement has {wanted:?} in its name; yasmin lab --list shows all names");
        }
    }
    let chosen = |case: &Case| only.is_empty() || only.iter().any(|wanted| case.has(wanted));
    Ok(cases.into_iter().filter(chosen).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::placement;

    fn cases(text: &str) -> anyhow::Result<Vec<Case>> {
        Plan::parse(text)?.cases(&placement::read(None)?)
    }

    #[test]
    fn built_in_plans_make_sense() {
        assert!(cases(PEERS).unwrap().iter().any(|case| case.has("latency/native/sockmap")));
        for text in [FULL, QUICK] {
            let cases = cases(text).unwrap();
            assert!(!cases.iter().any(|case| case.has("sockmap")));
            assert!(Plan::parse(text).unwrap().rounds >= 5);
            for wanted in [
                "heat/openmp",
                "is/mpich",
                "containers/rings",
                "unix",
                "mpi-shm",
                "native/segments",
                "containers/segments",
            ] {
                let found = cases.iter().any(|case| {
                    case.has(wanted) || wanted.starts_with("is") && case.name.starts_with("is-")
                });
                assert!(found, "{wanted}");
            }
        }
    }

    const ONE: &str = r#"
        rounds = 5
        limit_s = 60
        [[experiment]]
        name = "heat"
        kernel = "heat"
        arguments = ["50", "10"]
        models = ["serial", "openmp", "openmpi", "openshmem"]
        workers = [1, 2]
        placements = ["native", "containers"]
    "#;

    #[test]
    fn what_cannot_be_is_left_out() {
        let names: Vec<String> = cases(ONE).unwrap().into_iter().map(|case| case.name).collect();
        assert!(names.contains(&"heat/native/openmpi/mpi-shm/2".to_owned()));
        assert!(names.contains(&"heat/containers/openmpi/rings/2".to_owned()));
        assert!(names.contains(&"heat/native/openshmem/segments/1".to_owned()));
        assert!(names.contains(&"heat/containers/openshmem/segments/2".to_owned()));
        assert!(!names.iter().any(|name| name.contains("serial/memory/2")));
        assert!(!names.iter().any(|name| name.contains("containers/openmp/")));
        assert!(!names.iter().any(|name| name.contains("containers/openmpi/mpi-shm")));
        assert!(!names.contains(&"heat/containers/openshmem/segments/1".to_owned()));
    }

    #[test]
    fn nonsense_is_named() {
        for (from, to, says) in [
            ("rounds = 5", "rounds = 0", "rounds"),
            ("\"native\"", "\"moon\"", "no placement moon"),
            ("\"openmpi\"", "\"sockets\"", "no heat in sockets"),
            ("[1, 2]", "[]", "no combination"),
            ("kernel = \"heat\"", "kernel = \"heta\"", "heta"),
            ("[1, 2]", "[2, 2]", "two measurements"),
        ] {
            let error = cases(&ONE.replace(from, to)).unwrap_err();
            assert!(format!("{error:#}").contains(says), "{error:#}");
        }
    }

    #[test]
    fn only_takes_words_in_any_order() {
        let only = |words: &str| choose(cases(ONE).unwrap(), &[words.to_owned()]);
        assert_eq!(only("2/heat/mpi-shm").unwrap().len(), 1);
        assert!(only("heat/ring").is_err());
    }
}
