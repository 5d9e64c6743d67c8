//! The model against the figures that the source published, and its experiment in short.

use yasmin_placement::simulation::{Experiment, Pattern, SERVICES, Start, contrast};
use yasmin_placement::simulation::{source_chains, source_host, start_plan};
use yasmin_placement::{Settings, policy};

#[test]
fn latency_at_one_and_four_gbit() {
    for length in SERVICES {
        let ratio = |rate| {
            let (good, bad) = contrast(length, rate).unwrap();
            bad.latency_ns / good.latency_ns
        };
        assert!((1.3..=1.4).contains(&ratio(1.0)), "{length}: {}", ratio(1.0));
        assert!((2.0..=3.0).contains(&ratio(4.0)), "{length}: {}", ratio(4.0));
    }
}

#[test]
fn loss_begins_a_gbit_earlier() {
    let begins = |bad: bool| {
        let rates = (10..100).map(|tenths| f64::from(tenths) / 10.0);
        let lost = |rate: &f64| {
            let (good, worse) = contrast(5, *rate).unwrap();
            (if bad { worse } else { good }).passed < 0.999
        };
        rates.into_iter().find(lost).unwrap()
    };
    let earlier = begins(false) - begins(true);
    assert!((0.9..=1.1).contains(&earlier), "{earlier}");
}

#[test]
fn everyone_has_a_cpu_at_the_start() {
    let (host, chains) = (source_host(), source_chains());
    for start in Start::ALL {
        assert_eq!(start_plan(&host, &chains, start).seats.len(), 15, "{start:?}");
    }
}

#[test]
fn planning_beats_staying() {
    let experiment = Experiment { seconds: 60, ..Experiment::default() };
    let run = |name: &str, start, pattern| {
        let policy = policy(name, &Settings::default()).unwrap();
        let mut ticks = 0;
        let outcome = experiment.run(&*policy, start, pattern, || ticks += 1).unwrap();
        assert_eq!((ticks, outcome.series_us.len()), (60, 60));
        outcome
    };
    for pattern in Pattern::ALL {
        let stays = run("first-free", Start::Alternating, pattern);
        let ours = run("adaptive", Start::Alternating, pattern);
        let theirs = run("chain-first", Start::Alternating, pattern);
        assert_eq!(stays.moves, 0);
        assert!(ours.mean_latency_us < stays.mean_latency_us, "{pattern:?}");
        assert!(ours.dropped <= stays.dropped, "{pattern:?}");
        if pattern == Pattern::All {
            assert!(ours.moves <= theirs.moves, "{} {}", ours.moves, theirs.moves);
        }
        assert_eq!(ours, run("adaptive", Start::Alternating, pattern), "equal seeds");
    }
}
