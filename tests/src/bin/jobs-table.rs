//! docs/programs.md from the records of the jobs: `jobs-table FOLDER`, to standard output.

use std::path::Path;

use yasmin_tests::job::{Record, Way};

const HEAD: &str = "\
# Real programs

Made by `make jobs`: whole jobs by unmodified programs, each result checked (contents compared,
digests, every answer verified). Each runs over plain TCP first, then under `yasmin run`:
*default* as users start it, *forced* with a ring from the first bytes of every connection,
*chaos* forced and with the library parking, not offering or sending by TCP at random moments.
Server and clients are in two network namespaces; MPI ranks in one.

\"By ring\" is what the rings carried, from the broker's counters, and its share of that and of
all bytes that the namespaces' interfaces saw (headers, connections without a ring and the
programs' own control traffic included).

| program | job | plain TCP | default | by ring | forced | by ring | chaos | by ring |
|---|---|---|---|---|---|---|---|---|
";

fn main() {
    let folder = std::env::args().nth(1).unwrap_or_else(|| {
        eprintln!("usage: jobs-table FOLDER");
        std::process::exit(2);
    });
    let records = read(Path::new(&folder));
    let mut jobs: Vec<(&str, &str)> =
        records.iter().map(|record| (record.program.as_str(), record.job.as_str())).collect();
    jobs.sort_by_key(|(program, job)| (program.to_lowercase(), *job));
    jobs.dedup();
    let of = |(program, job): (&str, &str), way: Way| {
        records.iter().find(|one| one.program == program && one.job == job && one.way == way.name())
    };

    print!("{HEAD}");
    for job in &jobs {
        print!("| {} | {} |", job.0, job.1);
        for way in Way::ALL {
            let record = of(*job, way);
            print!(" {} |", record.map_or("-", result));
            if way != Way::Plain {
                print!(" {} |", record.map_or_else(|| "-".to_owned(), by_ring));
            }
        }
        println!();
    }
    println!("\n## What stays TCP\n");
    for job in &jobs {
        let Some(record) = of(*job, Way::Default) else { continue };
        if record.note.is_empty() && record.without.is_empty() {
            continue;
        }
        println!("- **{}**, {}: {}", job.0, first_words(job.1), record.note);
        for (who, count) in &record.without {
            println!("  {count} connections without a ring at some time: {who}.");
        }
    }
}

fn read(folder: &Path) -> Vec<Record> {
    let files = std::fs::read_dir(folder).unwrap_or_else(|error| {
        eprintln!("{}: {error}", folder.display());
        std::process::exit(1);
    });
    files
        .flatten()
        .filter_map(|file| std::fs::read_to_string(file.path()).ok())
        .filter_map(|text| serde_json::from_str(&text).ok())
        .collect()
}

fn result(record: &Record) -> &'static str {
    if record.passed { "passed" } else { "**failed**" }
}

fn first_words(job: &str) -> &str {
    job.split([',', ';']).next().unwrap_or(job)
}

fn by_ring(record: &Record) -> String {
    format!("{} ({:.1} %)", size(record.ring_bytes), record.share())
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}
