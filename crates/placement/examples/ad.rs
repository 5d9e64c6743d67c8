use std::time::Instant;
use yasmin_placement::*;
fn main() {
    let text = std::fs::read_to_string("/tmp/best.txt").unwrap();
    let (mut n, mut sum, mut all, mut t_all) = (0, 0.0, vec![], 0.0);
    for line in text.lines() {
        let mut w = line.split(' ');
        let seed: u64 = w.next().unwrap().parse().unwrap();
        let best: f64 = w.next().unwrap().parse().unwrap();
        let size = Size::small(seed);
        let (host, chains) = sample(size, seed);
        let t = Instant::now();
        let ours = Adaptive::default().plan(&host, &chains, None).unwrap();
        t_all += t.elapsed().as_secs_f64();
        let ad = Objective::default().cost(&host, &chains, &ours, None).unwrap().hops;
        let gap = 100.0 * (ad / best - 1.0);
        n += 1;
        sum += gap;
        all.push((gap, seed, size.functions, size.nodes));
    }
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    println!(
        "n {n} mean {:.4} time each {:.2} ms; over 0.01: {} worst:",
        sum / n as f64,
        1e3 * t_all / n as f64,
        all.iter().filter(|a| a.0 > 0.01).count()
    );
    for a in all.iter().take(12) {
        println!("  {:.3} seed {} f {} nodes {}", a.0, a.1, a.2, a.3);
    }
    for (nodes, functions) in [(16, 256), (64, 10_000)] {
        let (host, chains) = sample(Size { nodes, functions }, 0);
        let mut ts = vec![];
        let mut c = 0.0;
        for _ in 0..5 {
            let t = Instant::now();
            let p = Adaptive::default().plan(&host, &chains, None).unwrap();
            ts.push(t.elapsed().as_secs_f64() * 1e3);
            c = Objective::default().cost(&host, &chains, &p, None).unwrap().hops;
        }
        ts.sort_by(f64::total_cmp);
        println!("{functions}/{nodes}: {:.2} ms (min {:.2}) cost {c:.5e}", ts[2], ts[0]);
    }
}
