//! Random programs of socket calls, on plain TCP and under the library: results, errno, events
//! and bytes must agree.
//!
//! A program runs on plain TCP first. What it showed is then played to peers under the library,
//! in a random mood (spinning or not, parking and opening at random moments). On a difference
//! the program runs on plain TCP again, a few times: one that plain TCP itself does not decide
//! is left out. A real one is shrunk to the fewest steps and printed as commands, ready to
//! become a test in tests/semantics.
//!
//! Without more, the same programs each time, as many as a minute is enough for.
//! - `YASMIN_DIFFERENTIAL_S`: for so many seconds, new programs each time. Seeds of failing ones
//!   are kept in tests/differential.txt and tried first.
//! - `YASMIN_DIFFERENTIAL_SEED`: the first program's seed; the next one's is one more.
//! - `YASMIN_DIFFERENTIAL_STEPS`: the most steps of a program (default 40).
//! - `YASMIN_DIFFERENTIAL_ONLY`, `YASMIN_DIFFERENTIAL_WITHOUT`: see `classes`. A seed gives the
//!   same program with the same classes only.
//! - `YASMIN_DIFFERENTIAL_ON`: goes on after a difference, and shows them all.
//! - `YASMIN_DIFFERENTIAL_TELLS`: where every thread is when something hangs.

mod classes;
mod plan;
mod program;
mod shrink;
mod stage;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use yasmin_tests::lab::Mode;
use yasmin_tests::netns::Net;
use yasmin_tests::peer;

use crate::plan::{Line, Plan};
use crate::program::{End, Mood, Step, programs};
use crate::stage::Stage;

/// How often plain TCP must agree with itself before a difference counts.
const CONFIRMATIONS: usize = 4;
/// The fixed programs, as many as the time is enough for.
const FIXED: u64 = 150;
const SHRINKING: Duration = Duration::from_secs(180);
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/differential.txt");

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

fn on_plain_tcp(script: &Path, net: Net, steps: &[Step]) -> Result<Vec<Line>, String> {
    let mut stage = Stage::new(script, net, None)?;
    let mut plan = Plan::new(&mut stage);
    plan.run(steps)?;
    Ok(plan.lines)
}

/// The kernel begins to note times some while after the first socket asks for them, and ends when
/// the last one is gone: one that stays makes all programs find the same.
fn times() -> Result<Stage, String> {
    let mut stage = Stage::new(peer!("script"), Net::Loopback, None)?;
    stage.connect("T")?;
    stage.ask(End::A, "set T timestamp 1")?;
    for _ in 0..200_000 {
        stage.ask(End::B, "send T 1")?;
        stage.ask(End::A, "poll T in 1000")?;
        if !stage.ask(End::A, "recv T 1 - control")?.ends_with("[]") {
            return Ok(stage);
        }
    }
    Err("the kernel notes no times".to_owned())
}

/// What became of one program.
enum Verdict {
    Same {
        ring_bytes: u64,
    },
    /// From which step on, and how.
    Differs(usize, String),
    /// Plain TCP does not agree with itself.
    Undecided,
}

fn judge(mood: Mood, steps: &[Step]) -> Result<Verdict, String> {
    let is_bare = steps.iter().any(Step::is_bare);
    let script = if is_bare { peer!("bare") } else { peer!("script") };
    let net = if steps.iter().any(Step::is_paced) { Net::Netns } else { Net::Loopback };
    let lines = on_plain_tcp(script, net, steps)?;
    // There bytes of the pattern are not where they would be.
    let may_be_wrong = steps.iter().any(Step::displaces);
    let wrong = lines.iter().find(|line| line.result.as_deref().is_some_and(is_wrong));
    if let Some(line) = wrong.filter(|_| !may_be_wrong) {
        return Err(format!("on plain TCP: {line:?}"));
    }
    let mut stage = Stage::new(script, net, Some(mood))?;
    let Err((step, difference)) = stage.replay(&lines) else {
        return Ok(Verdict::Same { ring_bytes: stage.ring_bytes() });
    };
    for _ in 0..CONFIRMATIONS {
        if Stage::new(script, net, None)?.replay(&lines).is_err() {
            return Ok(Verdict::Undecided);
        }
    }
    Ok(Verdict::Differs(step, difference))
}

fn is_wrong(result: &str) -> bool {
    result.contains("WRONG")
}

fn program(seed: u64, steps_max: usize) -> (Mood, Vec<Step>) {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    match programs(seed, steps_max).new_tree(&mut runner) {
        Ok(tree) => tree.current(),
        Err(reason) => panic!("no program can be made: {reason}"),
    }
}

/// The smallest program that differs, as text.
fn smallest(seed: u64, mood: Mood, steps: Vec<Step>, first: (usize, String)) -> String {
    let until = Instant::now() + SHRINKING;
    let (last, mut difference) = first;
    let mut steps = steps;
    steps.truncate(last + 1);
    // Twice, since some differ only now and then.
    let steps = shrink::shrink(steps, |steps| {
        let judged = (0..2).find_map(|_| match judge(mood, steps) {
            Ok(Verdict::Differs(step, how)) if Instant::now() < until => Some((step, how)),
            _ => None,
        });
        let (step, how) = judged?;
        difference = how;
        Some(step)
    });
    let steps: String = steps.iter().map(|step| format!("  {step:?}\n")).collect();
    format!("seed {seed}, {mood:?}\n{steps}differs from plain TCP {difference}")
}

/// A seed as it is kept: with the classes that it belongs to.
fn kept_line(seed: &str) -> String {
    let only = std::env::var("YASMIN_DIFFERENTIAL_ONLY").unwrap_or_default();
    let without = std::env::var("YASMIN_DIFFERENTIAL_WITHOUT").unwrap_or_default();
    format!("{seed} only={only} without={without}")
}

fn keep(seed: u64) {
    let file = std::fs::OpenOptions::new().create(true).append(true).open(KEPT);
    let line = kept_line(&seed.to_string());
    if let Err(error) = file.and_then(|mut file| writeln!(file, "{line}")) {
        eprintln!("{KEPT}: {error}");
    }
}

/// Those kept, if any, and then on from a seed; the fixed ones.
fn seeds(is_fixed: bool) -> Box<dyn Iterator<Item = u64>> {
    if let Some(first) = number("YASMIN_DIFFERENTIAL_SEED") {
        return Box::new((first..).take(if is_fixed { 1 } else { usize::MAX }));
    }
    if is_fixed {
        return Box::new(1..=FIXED);
    }
    let kept = std::fs::read_to_string(KEPT).unwrap_or_default();
    let kept: Vec<u64> = kept
        .lines()
        .filter_map(|line| line.split(' ').next().filter(|seed| kept_line(seed) == line))
        .filter_map(|seed| seed.parse().ok())
        .collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Box::new(kept.into_iter().chain((now.as_nanos() as u64 >> 10 << 16)..))
}

#[test]
fn plain_tcp_and_the_library_agree() {
    let seconds = number("YASMIN_DIFFERENTIAL_S");
    let (begun, limit) = (Instant::now(), Duration::from_secs(seconds.unwrap_or(60)));
    let steps_max = number("YASMIN_DIFFERENTIAL_STEPS").unwrap_or(40) as usize;
    let goes_on = std::env::var_os("YASMIN_DIFFERENTIAL_ON").is_some();
    let times = times().unwrap_or_else(|why| panic!("{why}"));
    let (mut tried, mut undecided, mut differing, mut by_ring) = (0, 0, 0, 0);
    for seed in seeds(seconds.is_none()) {
        if begun.elapsed() > limit {
            break;
        }
        let (mood, steps) = program(seed, steps_max);
        match judge(mood, &steps) {
            Ok(Verdict::Same { ring_bytes }) => by_ring += ring_bytes,
            Ok(Verdict::Undecided) => undecided += 1,
            Ok(Verdict::Differs(step, how)) => {
                println!("seed {seed} differs after {:?}", begun.elapsed());
                if seconds.is_some() {
                    keep(seed);
                }
                let found = smallest(seed, mood, steps, (step, how));
                println!("{found}");
                differing += 1;
                if !goes_on {
                    break;
                }
            }
            Err(why) => panic!("seed {seed}: {why}\n{steps:#?}"),
        }
        tried += 1;
    }
    drop(times);
    println!("{tried} programs, {undecided} of them undecided, {by_ring} bytes by ring");
    assert!(differing == 0, "{differing} programs differ from plain TCP: see above");
    assert!(tried > 0, "no program was tried in the time given");
    assert!(undecided * 20 <= tried + 20, "plain TCP decides too few: {undecided} of {tried}");
    assert!(Mode::from_env() == Mode::Tcp || by_ring > 0, "nothing went by ring");
}
