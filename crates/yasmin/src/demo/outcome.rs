//! What came out of a workload, and whether its bytes went where they should.

use anyhow::Context;
use serde::Serialize;

use super::broker::Totals;
use super::stage::How;
use super::workload::{Expect, Measured, Workload};
use yasmin_measure::environment::Environment;
use yasmin_measure::pairs;
use yasmin_measure::spread::Spread;
use yasmin_measure::table::gain;
use yasmin_measure::unit::Unit;

#[derive(Serialize)]
pub struct Report {
    pub environment: Environment,
    pub stage: String,
    /// How the broker proved that two ends belong together.
    pub proof: String,
    /// Unless an outcome has more samples.
    pub pairs: usize,
    pub seconds: u32,
    /// The version that this one is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
    pub outcomes: Vec<Outcome>,
}

#[derive(Serialize)]
pub struct Outcome {
    pub key: &'static str,
    pub name: String,
    pub unit: Unit,
    pub commands: Vec<String>,
    pub expect: Expect,
    pub plain: Spread,
    pub rings: Spread,
    /// Times better with rings, pair by pair.
    pub gain: Spread,
    /// With rings of the version before, if there is one, and how many times better this one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
    /// What the programs say that they moved under `yasmin run`, and what the broker counted.
    pub payload_bytes: u64,
    pub ring_bytes: u64,
    pub tcp_bytes: u64,
    pub failure: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Before {
    pub rings: Spread,
    pub gain: Spread,
}

impl Before {
    /// Better or worse in every round, by median if at all: what lies within the spread is `None`.
    pub fn moved(&self) -> Option<f64> {
        let is_one_sided = self.gain.min > 1.0 || self.gain.max < 1.0;
        (is_one_sided && self.gain.samples.len() > 1).then_some(self.gain.median)
    }
}

/// Of what the programs moved, at least so much must have gone through rings.
const RING_SHARE: f64 = 0.5;

impl Outcome {
    pub fn new(workload: &dyn Workload) -> Self {
        Self {
            key: workload.key(),
            name: workload.name().to_owned(),
            unit: workload.unit(),
            commands: workload.commands(),
            expect: workload.expect(),
            plain: Spread::default(),
            rings: Spread::default(),
            gain: Spread::default(),
            before: None,
            payload_bytes: 0,
            ring_bytes: 0,
            tcp_bytes: 0,
            failure: None,
        }
    }

    /// Takes in one run.
    ///
    /// # Errors
    /// What failed, which then is the outcome.
    pub fn take(
        &mut self,
        how: How,
        measured: anyhow::Result<Measured>,
        moved: anyhow::Result<Totals>,
    ) -> anyhow::Result<()> {
        let taken = self.try_take(how, measured, moved);
        if let Err(error) = &taken {
            self.failure = Some(format!("{error:#}"));
            self.finish_spreads();
        }
        taken
    }

    fn try_take(
        &mut self,
        how: How,
        measured: anyhow::Result<Measured>,
        moved: anyhow::Result<Totals>,
    ) -> anyhow::Result<()> {
        let measured = measured.with_context(|| how.describe())?;
        let moved = moved?;
        match how {
            How::Plain => self.plain.add(measured.value),
            How::Before => self.before.get_or_insert_default().rings.add(measured.value),
            How::Rings => {
                self.rings.add(measured.value);
                self.payload_bytes += measured.payload_bytes;
                self.ring_bytes += moved.ring_bytes;
                self.tcp_bytes += moved.tcp_bytes;
            }
        }
        Ok(())
    }

    /// After the last run: medians, ratios, and the proof.
    pub fn finish(&mut self) {
        self.finish_spreads();
        if self.expect == Expect::Rings
            && (self.ring_bytes as f64) < RING_SHARE * self.payload_bytes as f64
        {
            self.failure = Some(format!(
                "only {} of {} went through rings",
                yasmin_measure::figure::bytes(self.ring_bytes as f64),
                yasmin_measure::figure::bytes(self.payload_bytes as f64)
            ));
        }
    }

    fn finish_spreads(&mut self) {
        self.gain = pairs::gain(self.unit, &self.plain, &self.rings);
        self.plain.finish();
        self.rings.finish();
        if let Some(before) = &mut self.before {
            before.gain = pairs::gain(self.unit, &before.rings, &self.rings);
            before.rings.finish();
        }
    }

    /// Of the bytes on connections that had a channel, the percentage that went by ring.
    pub fn ring_percent(&self) -> Option<f64> {
        let all = self.ring_bytes + self.tcp_bytes;
        (all > 0).then(|| 100.0 * self.ring_bytes as f64 / all as f64)
    }
}

impl Report {
    /// A line for each workload that is better or worse than before in every round.
    pub fn moves(&self) -> impl Iterator<Item = String> {
        self.outcomes.iter().filter_map(|outcome| {
            let moved = outcome.before.as_ref()?.moved()?;
            let word = if moved > 1.0 { "better" } else { "WORSE" };
            Some(format!("{word} than before in every round: {}, {}", outcome.name, gain(moved)))
        })
    }

    pub fn failures(&self) -> Vec<String> {
        let failed = |outcome: &Outcome| {
            let failure = outcome.failure.as_ref()?;
            Some(format!("{}: {failure}", outcome.name))
        };
        self.outcomes.iter().filter_map(failed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(expect: Expect) -> Outcome {
        let workload = super::super::workload::usual().remove(0);
        Outcome { expect, unit: Unit::PerSecond, ..Outcome::new(workload.as_ref()) }
    }

    fn moved_bytes(ring_bytes: u64) -> anyhow::Result<Totals> {
        Ok(Totals { ring_bytes, tcp_bytes: 10 })
    }

    fn measured(value: f64) -> anyhow::Result<Measured> {
        Ok(Measured { value, payload_bytes: 1000 })
    }

    #[test]
    fn rings_that_carried_nothing_are_a_failure() {
        for (ring_bytes, expect, fails) in
            [(0, Expect::Rings, true), (900, Expect::Rings, false), (0, Expect::Either, false)]
        {
            let mut outcome = outcome(expect);
            outcome.take(How::Plain, measured(10.0), moved_bytes(0)).unwrap();
            outcome.take(How::Rings, measured(30.0), moved_bytes(ring_bytes)).unwrap();
            outcome.finish();
            assert_eq!(outcome.failure.is_some(), fails);
            assert_eq!(outcome.gain.median, 3.0);
        }
    }

    #[test]
    fn only_what_every_round_says_has_moved() {
        for (before, now, moved) in [
            ([10.0, 20.0], [30.0, 40.0], Some(2.5)),
            ([10.0, 20.0], [5.0, 10.0], Some(0.5)),
            ([10.0, 20.0], [9.0, 40.0], None),
        ] {
            let mut outcome = outcome(Expect::Either);
            for (before, now) in before.into_iter().zip(now) {
                outcome.take(How::Before, measured(before), moved_bytes(0)).unwrap();
                outcome.take(How::Rings, measured(now), moved_bytes(0)).unwrap();
            }
            outcome.finish();
            assert_eq!(outcome.before.unwrap().moved(), moved);
        }
    }

    #[test]
    fn a_run_that_fails_is_the_outcome() {
        let mut outcome = outcome(Expect::Rings);
        let failed = Err(anyhow::anyhow!("it crashed"));
        assert!(outcome.take(How::Rings, failed, moved_bytes(0)).is_err());
        assert!(outcome.failure.unwrap().contains("it crashed"));
    }
}
