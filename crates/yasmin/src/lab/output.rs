//! What a kernel prints; `lab/kernels/lab.h` says what its lines are.

use anyhow::{Context, bail};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    /// The CPUs that each worker may use, as in 0-1,4.
    pub cpus: Vec<String>,
    /// Payload that workers sent to other workers.
    pub moved_bytes: u64,
    pub seconds: Option<f64>,
    /// Million keys ranked a second.
    pub mops: Option<f64>,
    /// Short ones, a second.
    pub connections_s: Option<f64>,
    pub points: Vec<Point>,
    /// What programs rely on, and whether it is as on TCP.
    pub behaviours: Vec<(String, bool)>,
    /// Checks that the kernel made, all of which passed.
    pub checks: u64,
}

/// One message size. A quantity of 0 has no meaning there; not all are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub len_bytes: u64,
    pub latency_ns: f64,
    pub bytes_s: f64,
    pub messages_s: f64,
}

impl Output {
    /// Reads `text`, in which launchers may have lines of their own.
    ///
    /// # Errors
    /// A line that is not as it should be, or checks that did not pass or were not made.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut output = Self::default();
        let mut moved = None;
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let name = words.next().unwrap_or_default();
            let words: Vec<&str> = words.collect();
            let strange = || format!("the kernel printed {line:?}");
            match (name, words.as_slice()) {
                ("cpus", [worker, cpus]) => {
                    let worker: usize = worker.parse().with_context(strange)?;
                    if worker >= output.cpus.len() {
                        output.cpus.resize(worker.min(u16::MAX.into()) + 1, String::new());
                    }
                    output.cpus[worker] = (*cpus).to_owned();
                }
                ("moved", [bytes]) => moved = Some(bytes.parse().with_context(strange)?),
                ("seconds", [value]) => {
                    output.seconds = Some(positive(value).with_context(strange)?)
                }
                ("mops", [value]) => output.mops = Some(positive(value).with_context(strange)?),
                ("connections", [rate]) => {
                    output.connections_s = Some(positive(rate).with_context(strange)?)
                }
                ("point", [len, latency, bytes, messages]) => {
                    let point = Point {
                        len_bytes: len.parse().with_context(strange)?,
                        latency_ns: number(latency).with_context(strange)?,
                        bytes_s: number(bytes).with_context(strange)?,
                        messages_s: number(messages).with_context(strange)?,
                    };
                    if point.latency_ns.max(point.bytes_s).max(point.messages_s) == 0.0 {
                        bail!(strange());
                    }
                    output.points.push(point);
                }
                ("behaves", [name, verdict @ ("0" | "1")]) => {
                    output.behaviours.push(((*name).to_owned(), *verdict == "1"));
                }
                ("checked", [passed, all]) => {
                    let passed: u64 = passed.parse().with_context(strange)?;
                    output.checks = all.parse().with_context(strange)?;
                    if passed != output.checks {
                        bail!("only {passed} of {all} checks passed");
                    }
                }
                (
                    "cpus" | "moved" | "seconds" | "mops" | "connections" | "point" | "behaves"
                    | "checked",
                    _,
                ) => bail!(strange()),
                _ => {}
            }
        }
        output.moved_bytes = moved.context("the kernel did not say what it moved")?;
        if output.checks == 0 {
            bail!("the kernel checked nothing");
        }
        let has_one = output.seconds.or(output.connections_s).is_some();
        if !has_one && output.points.is_empty() && output.behaviours.is_empty() {
            bail!("the kernel measured nothing");
        }
        Ok(output)
    }

    /// Whether a worker may use fewer CPUs than `all`, which the lab itself may use.
    pub fn is_pinned(&self, all: usize) -> bool {
        self.cpus.iter().any(|cpus| count(cpus) < all)
    }
}

/// How many CPUs a list such as 0-1,4 has.
fn count(cpus: &str) -> usize {
    let of = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        Some((last + 1).saturating_sub(first))
    };
    cpus.split(',').filter_map(of).sum()
}

fn number(text: &str) -> anyhow::Result<f64> {
    let value: f64 = text.parse()?;
    if value.is_finite() && value >= 0.0 { Ok(value) } else { bail!("{text} is no quantity") }
}

fn positive(text: &str) -> anyhow::Result<f64> {
    let value = number(text)?;
    if value > 0.0 { Ok(value) } else { bail!("{text} is nothing") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "some launcher's line\ncpus 0 0-1\ncpus 1 1\nmoved 640\nseconds 0.5\n\
                        mops 12.5\nchecked 51 51\n";

    #[test]
    fn lines_are_read() {
        let output = Output::parse(GOOD).unwrap();
        assert_eq!(output.cpus, ["0-1", "1"]);
        assert_eq!((output.seconds, output.mops, output.moved_bytes), (Some(0.5), Some(12.5), 640));
        assert!(output.is_pinned(2) && !output.is_pinned(1));
        let points = Output::parse("point 8 250.5 1e6 0\nmoved 0\nchecked 1 1\n").unwrap().points;
        assert_eq!((points[0].len_bytes, points[0].latency_ns), (8, 250.5));
        let output = Output::parse("connections 12.5\nmoved 0\nchecked 1 1\n").unwrap();
        assert_eq!(output.connections_s, Some(12.5));
        let output =
            Output::parse("behaves peek 1\nbehaves reset 0\nmoved 0\nchecked 2 2\n").unwrap();
        assert_eq!(output.behaviours, [("peek".to_owned(), true), ("reset".to_owned(), false)]);
    }

    #[test]
    fn nothing_wrong_is_taken() {
        for (from, to) in [
            ("checked 51 51", "checked 50 51"),
            ("checked 51 51", ""),
            ("checked 51 51", "checked 0 0"),
            ("moved 640", ""),
            ("moved 640", "moved -1"),
            ("seconds 0.5", "seconds nan"),
            ("seconds 0.5", "seconds 0"),
            ("seconds 0.5", "seconds 0.5 0.6"),
            ("cpus 1 1", "cpus x 1"),
            ("mops 12.5", "point 8 0 0 0"),
            ("mops 12.5", "connections 0"),
            ("mops 12.5", "behaves peek 2"),
        ] {
            assert!(Output::parse(&GOOD.replace(from, to)).is_err(), "{to}");
        }
    }
}
