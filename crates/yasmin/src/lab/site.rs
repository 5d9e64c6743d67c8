//! A placement that is ready: its namespaces made, its addresses known.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context;

use super::placement::{Network, Placement};
use crate::demo::netns::{ADDRESSES, Namespaces};
use crate::demo::process;

pub struct Site {
    machines: Vec<Ready>,
    /// Whether the lab made the machines, which then are parts of this one.
    pub is_own: bool,
    /// What stands before a program whose connections get rings, if the placement says so.
    pub rings: Option<Vec<String>>,
    /// In which OpenSHMEM's PEs meet, if the placement says so.
    pub segment: Option<String>,
    /// Starts a command on the machine that has an address, as rsh and ssh do.
    pub agent: PathBuf,
    /// Gone with the site.
    _namespaces: Option<Namespaces>,
}

#[derive(Default)]
struct Ready {
    address: String,
    enter: Vec<String>,
    reach: Option<Vec<String>>,
    copy: Option<Vec<String>>,
    counts: Option<Vec<String>>,
}

/// In the words that copy a file.
const FILE: &str = "{file}";

impl Site {
    /// `folder` is for files of this placement alone.
    pub fn set(placement: &Placement, folder: &Path) -> anyhow::Result<Self> {
        let namespaces = match (placement.network, placement.machines.len()) {
            (Network::Given, _) => None,
            (Network::Namespaces, 1) => Some(Namespaces::single()?),
            (Network::Namespaces, _) => Some(Namespaces::pair()?),
        };
        fs::create_dir_all(folder)?;
        for machine in &placement.machines {
            fs::create_dir_all(folder.join(&machine.name))?;
        }
        let ready = |(nth, machine): (usize, &super::placement::Machine)| {
            let made = namespaces.as_ref();
            let address = made.map(|_| ADDRESSES[nth].to_owned()).or(machine.address.clone());
            let address = address.unwrap_or_default();
            let namespace = made.map_or("", |made| made.name(nth));
            let fill = |word: &String| {
                word.replace("{name}", &machine.name)
                    .replace("{address}", &address)
                    .replace("{namespace}", namespace)
                    .replace("{folder}", &folder.join(&machine.name).display().to_string())
            };
            let filled = |words: &Vec<String>| words.iter().map(fill).collect::<Vec<String>>();
            Ready {
                enter: filled(&machine.enter),
                reach: machine.reach.as_ref().map(filled),
                copy: placement.copy.as_ref().map(filled),
                counts: placement.counts.as_ref().map(filled),
                address: address.clone(),
            }
        };
        let machines: Vec<Ready> = placement.machines.iter().enumerate().map(ready).collect();
        // No machine can have this name.
        let agent = folder.join("agent.sh");
        fs::write(&agent, agent_script(&machines))?;
        fs::set_permissions(&agent, Permissions::from_mode(0o755))?;
        Ok(Self {
            machines,
            is_own: namespaces.is_some(),
            rings: placement.rings.clone(),
            segment: placement.segment.clone(),
            agent,
            _namespaces: namespaces,
        })
    }

    /// Copies `files` and the agent to all machines, where the placement says how.
    pub fn bring(&self, files: &[PathBuf]) -> anyhow::Result<()> {
        for machine in &self.machines {
            let Some(copy) = &machine.copy else { continue };
            for file in files.iter().chain([&self.agent]) {
                let words: Vec<String> = copy
                    .iter()
                    .map(|word| word.replace(FILE, &file.display().to_string()))
                    .collect();
                said(command(&words)?).with_context(|| {
                    format!("cannot copy {} to {}", file.display(), machine.address)
                })?;
            }
        }
        Ok(())
    }

    /// Takes away what `bring` brought, which lay in `folder`.
    pub fn clear(&self, folder: &Path) {
        let folder = folder.display().to_string();
        for nth in (0..self.machines.len()).filter(|nth| self.machines[*nth].copy.is_some()) {
            // A machine that does not answer any more keeps its copies.
            let _ = self.ask(nth, &["rm", "-rf", &folder]);
        }
    }

    /// What rings or shared pages have carried from all machines, by the placement's own counters.
    /// `None`: it has none.
    pub fn moved_bytes(&self) -> anyhow::Result<Option<u64>> {
        let mut sum = None;
        for (nth, machine) in self.machines.iter().enumerate() {
            let Some(counts) = &machine.counts else { return Ok(None) };
            let words: Vec<&str> = counts.iter().map(String::as_str).collect();
            let said = self.ask(nth, &words)?;
            let bytes: u64 = said
                .trim()
                .parse()
                .with_context(|| format!("{}: {said:?} is no number of bytes", counts.join(" ")))?;
            *sum.get_or_insert_default() += bytes;
        }
        Ok(sum)
    }

    pub fn len(&self) -> usize {
        self.machines.len()
    }

    pub fn address(&self, machine: usize) -> &str {
        &self.machines[machine].address
    }

    pub fn addresses(&self) -> Vec<&str> {
        self.machines.iter().map(|machine| machine.address.as_str()).collect()
    }

    /// The command that runs `words` on a machine. `outside`: words before those of the machine.
    pub fn command(
        &self,
        machine: usize,
        outside: &[String],
        words: &[String],
    ) -> anyhow::Result<Command> {
        let enter = &self.machines[machine].enter;
        let all: Vec<String> = outside.iter().chain(enter).chain(words).cloned().collect();
        command(&all)
    }

    /// What `words` print on a machine.
    pub fn ask(&self, machine: usize, words: &[&str]) -> anyhow::Result<String> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        said(self.command(machine, &[], &words)?).with_context(|| words.join(" "))
    }
}

fn command(words: &[String]) -> anyhow::Result<Command> {
    let (first, rest) = words.split_first().context("there is nothing to run")?;
    let program = process::find(first).with_context(|| format!("{first} is missing"))?;
    let mut command = Command::new(program);
    command.args(rest).env_remove("LD_PRELOAD").stdin(Stdio::null());
    Ok(command)
}

/// What it prints.
fn said(mut command: Command) -> anyhow::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        anyhow::bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// `agent [OPTION ...] ADDRESS WORD ...`: as with ssh, the words are joined for a shell.
fn agent_script(machines: &[Ready]) -> String {
    let mut script = "#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\n\
                      address=$1\nshift\ncase $address in\n"
        .to_owned();
    for machine in machines {
        let shell = ["sh", "-c"].map(String::from);
        let words = match &machine.reach {
            Some(reach) => reach.clone(),
            None => machine.enter.iter().chain(&shell).cloned().collect(),
        };
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let line = format!("{}) exec {} \"$*\" ;;\n", machine.address, words.join(" "));
        script.push_str(&line);
    }
    script.push_str("*) echo \"the lab has no machine $address\" >&2; exit 1 ;;\nesac\n");
    script
}

/// For a shell, as one word.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_agent_finds_the_machine_and_keeps_words() {
        let folder = tempfile::tempdir().unwrap();
        let machine = |address: &str, says: &str| Ready {
            address: address.to_owned(),
            enter: ["env", &format!("SAYS={says}")].map(String::from).to_vec(),
            ..Ready::default()
        };
        let reached = Ready {
            reach: Some(["sh", "-c"].map(String::from).to_vec()),
            ..machine("192.0.2.4", "no")
        };
        let machines = [machine("192.0.2.1", "it's a"), machine("192.0.2.2", "b"), reached];
        let script = agent_script(&machines);
        let agent = folder.path().join("agent");
        fs::write(&agent, script).unwrap();
        let run = |words: &[&str]| {
            let output = Command::new("sh").arg(&agent).args(words).output().unwrap();
            (output.status.success(), String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let says = (true, "it's a x".to_owned());
        assert_eq!(run(&["-x", "-q", "192.0.2.1", "echo", "$SAYS", "x"]), says);
        assert_eq!(run(&["192.0.2.2", "echo $SAYS"]), (true, "b".to_owned()));
        assert_eq!(run(&["192.0.2.4", "echo", "'$SAYS'", "x"]), (true, "$SAYS x".to_owned()));
        assert!(!run(&["192.0.2.3", "true"]).0);
    }
}
