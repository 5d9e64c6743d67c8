//! Open MPI and MPICH over TCP: ranks poll and connect without blocking.

use yasmin_tests::job::{self, Job, Rings, Stage};

#[test]
fn open_mpi() {
    job::check(&Job {
        program: "Open MPI",
        job: "4 ranks, btl tcp: point-to-point and collectives of many sizes, results checked",
        needs: &["mpirun.openmpi", "mpicc.openmpi"],
        is_large: true,
        rings: Rings::Used,
        note: "",
        run: |stage| {
            let mca = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"];
            let common = ["--allow-run-as-root", "--oversubscribe", "-n", "4"];
            run(stage, "mpicc.openmpi", "mpirun.openmpi", &[&mca[..], &common].concat(), "5");
        },
    });
}

#[test]
fn mpich() {
    job::check(&Job {
        program: "MPICH",
        job: "3 ranks, UCX tcp: point-to-point and collectives of many sizes, results checked",
        needs: &["mpirun.mpich", "mpicc.mpich"],
        is_large: true,
        rings: Rings::Used,
        note: "",
        run: |stage| {
            // With 4 ranks on 2 CPUs it sometimes never ends, on plain TCP too.
            let words = ["-genv", "UCX_TLS", "tcp,self", "-n", "3"];
            run(stage, "mpicc.mpich", "mpirun.mpich", &words, "1");
        },
    });
}

fn run(stage: &Stage, compiler: &str, launcher: &str, words: &[&str], rounds: &str) {
    let source = stage.write("ranks.c", include_str!("mpi.c"));
    let program = stage.path("ranks");
    stage.server(compiler, &["-O2", "-w", "-o", &program, &source]).plain().run();
    let text = stage.server(launcher, &[words, &[&program, rounds]].concat()).run();
    assert!(text.contains("all right"), "{text}");
}
