//! OpenSHMEM's PEs, all of one job: an `oshrun` on the first machine leads, one on each other joins.

use std::time::Duration;

use anyhow::Context;

use super::launch::{Bench, await_line};
use super::plan::Case;
use super::site::Site;
use super::way::Kernel;

/// IS of class C puts 512 MiB of keys in order, in all PEs' heaps together, and has as much room
/// for what each PE counts.
const IS_HEAPS_MIB: u32 = 1024;
/// What a PE's heap has by itself, see oshrun(1).
const HEAP_MIB: u32 = 64;

impl Bench {
    /// The words of the `oshrun` that leads, before the program's.
    pub fn lead(&self, case: &Case, site: &Site) -> Vec<String> {
        let mut words = Vec::new();
        if case.kernel == Kernel::Is {
            let heap = HEAP_MIB.max(IS_HEAPS_MIB / case.workers);
            words.extend(["env".to_owned(), format!("SHMEM_SYMMETRIC_SIZE={heap}M")]);
        }
        words.extend(self.oshrun());
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
                words.splice(at..=at, self.oshrun());
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

    /// With the lab's broker, whatever the machine.
    fn oshrun(&self) -> [String; 5] {
        let (yasmin, socket) = (self.yasmin.display(), self.rings.socket().display());
        [&yasmin.to_string(), "oshrun", "--no-broker", "--socket", &socket.to_string()]
            .map(str::to_owned)
    }
}
