//! Random programs of socket calls, on plain TCP and under the library: results, errno, events
//! and bytes must agree.
//!
//! A program runs on plain TCP first. What it showed is then played to peers under the library,
//! in a random mood (spinning or not, parking and opening at random moments). On a difference
//! the program runs on plain TCP again, a few times: one that plain TCP itself does not decide
//! is left out. A real one is shrunk to the fewest steps and printed as commands, ready to
//! become a test in tests/semantics.
//!
//! Without more, the same 150 programs each time, or as many as a minute is enough for.
//! `YASMIN_DIFFERENTIAL_S`: for so many seconds, new programs each time; failing seeds are kept
//! in tests/differential.txt and tried first. `YASMIN_DIFFERENTIAL_STEPS`: the most steps of a
//! program (default 40).

mod plan;
mod program;
mod stage;

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::test_runner::{
    Config, FileFailurePersistence, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner,
};
use yasmin_tests::lab::Mode;
use yasmin_tests::peer;

use crate::plan::{Line, Plan};
use crate::program::{Mood, Step, programs};
use crate::stage::Stage;

/// How often plain TCP must agree with itself before a difference counts.
const CONFIRMATIONS: usize = 4;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn on_plain_tcp(script: &Path, steps: &[Step]) -> Result<Vec<Line>, String> {
    let mut stage = Stage::new(script, None)?;
    let mut plan = Plan::new(&mut stage);
    plan.run(steps)?;
    Ok(plan.lines)
}

/// What became of one program.
enum Verdict {
    Same {
        ring_bytes: u64,
    },
    Differs(String),
    /// Plain TCP does not agree with itself.
    Undecided,
}

fn judge(script: &Path, mood: Mood, steps: &[Step]) -> Result<Verdict, String> {
    let lines = on_plain_tcp(script, steps)?;
    // An urgent byte that another one followed, or that is read in line, is not of the pattern.
    let is_urgent = steps.iter().any(|step| matches!(step, Step::Urgent { .. }));
    let wrong = lines.iter().find(|line| line.result.as_deref().is_some_and(is_wrong));
    if let Some(line) = wrong.filter(|_| !is_urgent) {
        return Err(format!("on plain TCP: {line:?}"));
    }
    let mut stage = Stage::new(script, Some(mood))?;
    let Err(difference) = stage.replay(&lines) else {
        return Ok(Verdict::Same { ring_bytes: stage.ring_bytes() });
    };
    for _ in 0..CONFIRMATIONS {
        if Stage::new(script, None)?.replay(&lines).is_err() {
            return Ok(Verdict::Undecided);
        }
    }
    Ok(Verdict::Differs(difference))
}

fn is_wrong(result: &str) -> bool {
    result.contains("WRONG")
}

#[test]
fn plain_tcp_and_the_library_agree() {
    let script = peer!("script");
    let seconds = number("YASMIN_DIFFERENTIAL_S", 0);
    let is_fixed = seconds == 0;
    let until = Instant::now() + Duration::from_secs(if is_fixed { 60 } else { seconds });
    let steps_max = number("YASMIN_DIFFERENTIAL_STEPS", 40) as usize;
    let (tried, undecided, by_ring) = (Cell::new(0u32), Cell::new(0u32), Cell::new(0u64));
    let kept = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential.txt");
    // Programs are tried until the time is over; then the rest of them is rejected at once.
    let config = Config {
        cases: if is_fixed { 150 } else { u32::MAX },
        max_global_rejects: 1,
        max_shrink_time: 120_000,
        failure_persistence: (!is_fixed)
            .then(|| Box::new(FileFailurePersistence::Direct(kept)) as Box<_>),
        ..Config::default()
    };
    let mut runner = if is_fixed {
        TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
    } else {
        TestRunner::new(config)
    };
    let is_failing = Cell::new(false);
    let result = runner.run(&programs(steps_max), |(mood, steps)| {
        // Shrinking goes on when the time is over.
        if Instant::now() > until && !is_failing.get() {
            return Err(TestCaseError::reject("time is over"));
        }
        match judge(script, mood, &steps).map_err(TestCaseError::fail)? {
            Verdict::Same { ring_bytes } => by_ring.set(by_ring.get() + ring_bytes),
            Verdict::Undecided => undecided.set(undecided.get() + 1),
            Verdict::Differs(difference) => {
                is_failing.set(true);
                return Err(TestCaseError::fail(difference));
            }
        }
        tried.set(tried.get() + 1);
        Ok(())
    });
    match result {
        Ok(()) | Err(TestError::Abort(_)) => {}
        Err(TestError::Fail(why, (mood, steps))) => {
            let steps: String = steps.iter().map(|step| format!("  {step:?}\n")).collect();
            panic!("{mood:?}\n{steps}differs from plain TCP {why}")
        }
    }
    let (tried, undecided) = (tried.get(), undecided.get());
    println!("{tried} programs, {undecided} of them undecided, {} bytes by ring", by_ring.get());
    assert!(tried > 0, "no program was tried in the time given");
    assert!(undecided * 20 <= tried + 20, "plain TCP decides too few: {undecided} of {tried}");
    assert!(Mode::from_env() == Mode::Tcp || by_ring.get() > 0, "nothing went by ring");
}
