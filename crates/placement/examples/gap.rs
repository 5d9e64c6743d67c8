use std::time::Instant;
use yasmin_placement::*;
fn main() {
    let a: Vec<u64> = std::env::args().skip(1).map(|x| x.parse().unwrap()).collect();
    let (from, to, steps, stride) = (a[0], a[1], a[2], a.get(3).copied().unwrap_or(1));
    let (mut n, mut proven, mut sum, mut worst, mut sb, mut wb, mut over) =
        (0, 0, 0.0, 0.0f64, 0.0, 0.0f64, 0);
    for seed in (from..to).step_by(stride as usize) {
        let size = Size::small(seed);
        let (host, chains) = sample(size, seed);
        let t = Instant::now();
        let ours = Adaptive::default().plan(&host, &chains, None).unwrap();
        let ta = t.elapsed().as_secs_f64();
        let ad = Objective::default().cost(&host, &chains, &ours, None).unwrap().hops;
        let t = Instant::now();
        let proof = Exact { steps, ..Exact::default() }.prove(&host, &chains, None).unwrap();
        let te = t.elapsed().as_secs_f64();
        let best = proof.cost.min(ad);
        let gap = 100.0 * (ad / best - 1.0);
        let gb = if proof.is_best() { gap } else { 100.0 * (ad / proof.bound - 1.0) };
        n += 1;
        eprintln!("{seed} {best}");
        if proof.is_best() {
            proven += 1;
            sum += gap;
            worst = worst.max(gap);
        }
        sb += gb;
        wb = wb.max(gb);
        if gb > 3.5 {
            over += 1
        }
        let room: Vec<usize> = host.nodes.iter().map(|n| n.free.len()).collect();
        println!(
            "{seed} nodes {} f {} cpus {} chains {} {} gap {gap:.2} gb {gb:.2} steps {} ta {:.1}ms te {te:.2}s room {room:?} kind {}",
            size.nodes,
            size.functions,
            host.cpus(),
            chains.len(),
            if proof.is_best() { "proven" } else { "OPEN" },
            proof.steps,
            ta * 1e3,
            host.distance[0][host.nodes.len() - 1]
        );
    }
    println!(
        "TOTAL n {n} proven {proven} mean {:.3} worst {worst:.2} | bound mean {:.3} worst {wb:.2} over {over}",
        sum / proven.max(1) as f64,
        sb / n as f64
    );
}
