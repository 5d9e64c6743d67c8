use super::*;

fn edges(rates: &[f64]) -> Vec<Edge> {
    let edge = |(at, rate): (usize, &f64)| Edge {
        a: LinkEnd::Function(format!("{at:03}a")),
        b: LinkEnd::Function(format!("{at:03}b")),
        rate: *rate,
        dropped: 0.0,
        origins: Vec::new(),
    };
    rates.iter().enumerate().map(edge).collect()
}

/// A detector that has planned for these rates.
fn planned(rates: &[f64]) -> Detector {
    let mut detector = Detector::new(Sensitivity::default());
    detector.look(0.0, &edges(rates));
    assert!(matches!(detector.look(0.2, &edges(rates)), Verdict::Shifted { .. }));
    detector.planned(0.2);
    detector
}

/// Numbers that look like chance, the same each time (splitmix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Within a tenth.
    fn on(&mut self, rates: &[f64]) -> Vec<f64> {
        rates.iter().map(|rate| rate * (0.9 + 0.2 * self.next())).collect()
    }
}

#[test]
fn noise_is_no_change() {
    for (seed, rates) in [(1, vec![4e8, 2e8, 1e8]), (2, vec![1e8; 40]), (3, vec![9e8, 1e7])] {
        let mut noise = Noise(seed);
        let mut detector = Detector::new(Sensitivity::default());
        let mut plans = 0;
        for second in 0..3600 {
            let verdict = detector.look(f64::from(second), &edges(&noise.on(&rates)));
            if let Verdict::Shifted { .. } = verdict {
                plans += 1;
                detector.planned(f64::from(second));
            }
        }
        assert_eq!(plans, 1, "the first plan and no other, with {rates:?}");
    }
}

#[test]
fn more_of_everything_is_no_change() {
    let mut detector = planned(&[4e8, 2e8, 1e8]);
    assert_eq!(detector.look(1.0, &edges(&[8e8, 4e8, 2e8])), Verdict::Steady);
    assert_eq!(detector.look(2.0, &edges(&[4e5, 2e5, 1e5])), Verdict::Steady);
    assert_eq!(detector.look(3.0, &edges(&[0.0, 0.0, 0.0])), Verdict::Steady);
}

#[test]
fn a_shift_is_one_change() {
    let mut detector = planned(&[4e8, 2e8, 1e8]);
    let mut noise = Noise(4);
    assert_eq!(detector.look(1.0, &edges(&[4e8, 2e8, 1e8])), Verdict::Steady);
    // A look in which both states mix, then the new state.
    assert_eq!(detector.look(2.0, &edges(&[3e8, 2e8, 2e8])), Verdict::Unsettled);
    assert_eq!(detector.look(2.2, &edges(&[1e8, 2e8, 4e8])), Verdict::Unsettled);
    let verdict = detector.look(2.4, &edges(&[1e8, 2e8, 4e8]));
    let Verdict::Shifted { edge, before, now } = verdict else { panic!("{verdict:?}") };
    assert!(edge.contains("002a") && before < 0.2 && now > 0.5, "{edge} {before} {now}");
    detector.planned(2.4);
    for second in 3..600 {
        let verdict = detector.look(f64::from(second), &edges(&noise.on(&[1e8, 2e8, 4e8])));
        assert!(!matches!(verdict, Verdict::Shifted { .. }), "{second}: {verdict:?}");
    }
}

#[test]
fn small_shifts_take_longer() {
    let mut detector = planned(&[1e8, 1e8]);
    for second in 1..12 {
        detector.look(f64::from(second), &edges(&[1e8, 1e8]));
    }
    let shifted = (1..100).find(|second| {
        let look = detector.look(f64::from(*second), &edges(&[1.5e8, 1e8]));
        matches!(look, Verdict::Shifted { .. })
    });
    assert!((3..30).contains(&shifted.unwrap()), "{shifted:?}");
}

#[test]
fn what_never_settles_counts_after_a_while() {
    let mut detector = planned(&[1e8, 1e8]);
    let looks = (1..50).map(|at| {
        let (one, two) = if at % 2 == 0 { (9e8, 1e8) } else { (1e8, 9e8) };
        detector.look(f64::from(at), &edges(&[one, two]))
    });
    assert!(looks.take(8).any(|verdict| matches!(verdict, Verdict::Shifted { .. })));
}

#[test]
fn an_edge_that_ends_is_a_change() {
    let mut detector = planned(&[1e8, 1e8]);
    detector.look(1.0, &edges(&[1e8]));
    let verdict = detector.look(1.2, &edges(&[1e8]));
    assert!(matches!(verdict, Verdict::Shifted { .. }), "{verdict:?}");
}
