//! OpenSHMEM: C programs of each chapter of the specification, compiled by `oshcc` and run by
//! `oshrun` of an installation, on a segment of a real broker. Each checks every value.

mod domains;
mod ends;
mod lab;

use lab::Lab;

/// Compiles `name` and runs it with so many processing elements.
#[track_caller]
fn well(name: &str, counts: &[u16]) {
    let lab = Lab::new();
    lab.compile(name, &[]);
    for &count in counts {
        lab.run(count, name, &[], &[]).finish();
        lab.nothing_left();
    }
}

#[test]
fn setup_and_symmetric_memory() {
    well("setup.c", &[1, 2, 4]);
    // Wherever a linker puts variables.
    let lab = Lab::new();
    for options in [&["-no-pie"][..], &["-Wl,-z,norelro"], &["-Wl,-z,lazy", "-O2"]] {
        lab.compile("setup.c", options);
        lab.run(2, "setup.c", &["implied"], &[]).finish();
    }
}

#[test]
fn the_heap() {
    let lab = Lab::new();
    lab.compile("memory.c", &[]);
    lab.run(3, "memory.c", &[], &[]).finish();
    for (name, size) in [("SHMEM_SYMMETRIC_SIZE", "4M"), ("SMA_SYMMETRIC_SIZE", "4096k")] {
        lab.run(2, "memory.c", &[], &[(name, size)]).finish();
    }
    for size in ["262144", "0.25M"] {
        // Too small for all of its blocks.
        let mut small = lab.run(2, "memory.c", &[], &[("SHMEM_SYMMETRIC_SIZE", size)]);
        assert_eq!(small.wait().code(), Some(1), "{}", small.output());
        assert!(small.output().contains("not so: blocks[i]"), "{}", small.output());
    }
    let size = [("SHMEM_SYMMETRIC_SIZE", "a lot")];
    let mut bad = lab.run(2, "memory.c", &[], &size);
    assert_eq!(bad.wait().code(), Some(1), "{}", bad.output());
    assert!(bad.output().contains("SHMEM_SYMMETRIC_SIZE is 'a lot': give bytes"));
    lab.nothing_left();
}

#[test]
fn put_and_get() {
    well("rma.c", &[1, 3]);
}

#[test]
fn atomics() {
    well("atomic.c", &[1, 4]);
}

#[test]
fn teams_and_contexts() {
    well("team.c", &[1, 3, 4]);
}

#[test]
fn collectives() {
    well("collective.c", &[1, 2, 4]);
}

#[test]
fn reductions() {
    well("reduce.c", &[1, 3, 8]);
}

#[test]
fn waiting() {
    well("wait.c", &[1, 4]);
}

#[test]
fn locks_and_order() {
    well("lock.c", &[1, 2, 4]);
}

#[test]
fn one_name_for_all_types() {
    well("generic.c", &[1, 3]);
}

#[test]
fn a_program_in_cpp() {
    well("plain.cc", &[1, 4]);
}

#[test]
fn a_tool_in_place_of_calls() {
    well("profile.c", &[1, 3]);
}
