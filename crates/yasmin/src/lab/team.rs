//! OpenSHMEM's PEs, all of one job: an `oshrun` on the first machine leads, one on each other joins.

use std::time::Duration;

use anyhow::Context;

use super::launch::{Bench, await_line};
use super::plan::Case;
use super::site::Site;
use super::way::Kernel;

/// What a PE's heap has by itself, see oshrun(1).
const HEAP_MIB: u32 = 64;
/// In a segment of the placement's.
const SMALL_HEAP_MIB: u32 = 24;

/// IS of class C puts 512 MiB of keys in order, in all PEs' heaps together, and has as much room
/// for what each PE counts; other classes have fewer keys.
fn is_heaps_mib(class: Option<&String>) -> u32 {
    match class.map(String::as_str) {
        Some("S" | "W") => 16,
        Some("A") => 64,
        Some("B") => 256,
        _ => 1024,
    }
}

impl Bench {
    /// The words of the `oshrun` that leads, before the program's.
    pub fn lead(&self, case: &Case, site: &Site) -> Vec<String> {
        let mut words = Vec::new();
        let mut heap = if site.segment.is_some() { SMALL_HEAP_MIB } else { HEAP_MIB };
        if case.kernel == Kernel::Is {
            heap = heap.max(is_heaps_mib(case.arguments.first()) / case.workers);
        }
        if heap != HEAP_MIB {
            words.extend(["env".to_owned(), format!("SHMEM_SYMMETRIC_SIZE={heap}M")]);
        }
        words.extend(self.oshrun(site));
        if let Some(segment) = &site.segment {
            words.extend(["--segment".to_owned(), segment.clone()]);
        }
        words.extend(["-n".to_owned(), case.workers.to_string()]);
        if site.len() > 1 {
            let domains = [&["."], &site.addresses()[1..]].concat();
            words.extend(["--domains".to_owned(), domains.join(",")]);
        }
        words
    }

    /// On several machines. The domains' names are their addresses, which no container has for a
    /// name, so that the one that leads says what to start there.
    pub fn lead_and_join(&self, case: &Case, site: &Site) -> anyhow::Result<String> {
        let limit = Duration::from_secs(case.limit_s);
        let mut lead = self.start(case, site, 0, &self.words(case)?, "oshrun")?;
        let mut joined = Vec::new();
        for machine in 1..site.len() {
            let begin = format!("oshrun: in {}, start: ", site.address(machine));
            let line = await_line(&mut lead, "others can join", |line| {
                Some(line.strip_prefix(&begin)?.to_owned())
            })?;
            let mut words = shlex::split(&line).context(line)?;
            if let Some(at) = words.iter().position(|word| word == "oshrun") {
                words.splice(at..=at, self.oshrun(site));
            }
            joined.push(self.start(case, site, machine, &words, "oshrun")?);
        }
        // One that cannot join is not waited for.
        for process in joined {
            let said = || format!("the oshrun that leads said {:?}", lead.output().trim());
            process.finish(limit).with_context(said)?;
        }
        lead.finish(limit)
    }

    /// With the lab's broker, whatever the machine; with the machine's own where it is none of the
    /// lab's.
    fn oshrun(&self, site: &Site) -> Vec<String> {
        let socket = self.rings.socket().display().to_string();
        let (program, broker) = match site.segment {
            Some(_) => ("yasmin".to_owned(), None),
            None => (self.yasmin.display().to_string(), Some(["--socket".to_owned(), socket])),
        };
        let mut words = vec![program, "oshrun".to_owned(), "--no-broker".to_owned()];
        words.extend(broker.into_iter().flatten());
        words
    }
}
