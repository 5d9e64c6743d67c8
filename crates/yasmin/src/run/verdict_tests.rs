//! Verdicts on real binaries, built here by the C compilers of the machine.

use super::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;
use tempfile::TempDir;

const SOURCE: &str = "int main(void) { return 0; }";
const ANOTHER_USER: u32 = 12345;

/// A folder with `libyasmin.so` (an empty one) and what the tests build.
struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Self {
        let bench = Self { folder: TempDir::new().unwrap() };
        fs::write(bench.path("main.c"), SOURCE).unwrap();
        fs::write(bench.path("empty.c"), "").unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-nostdlib", "-o", "libyasmin.so", "empty.c"])
            .current_dir(bench.folder.path())
            .status();
        assert!(built.expect("the tests need a C compiler").success());
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// `None` where this machine has no such compiler.
    fn build(&self, compiler: &str, options: &[&str]) -> Option<PathBuf> {
        let status = Command::new(compiler)
            .args(options)
            .args(["-o", "program", "main.c"])
            .current_dir(self.folder.path())
            .stderr(std::process::Stdio::null())
            .status();
        status.is_ok_and(|status| status.success()).then(|| self.path("program"))
    }

    fn script(&self, first_line: &str) -> PathBuf {
        let path = self.path("script");
        fs::write(&path, format!("{first_line}\nexit 0\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn judge(&self, program: &Path, arguments: &[&str]) -> Verdict {
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        of(program, &arguments, &self.path("libyasmin.so"))
    }
}

fn reason(verdict: Verdict) -> String {
    match verdict {
        Verdict::Accelerated => "accelerated".to_owned(),
        Verdict::Injected => "injected".to_owned(),
        Verdict::ChildrenOnly(reason) | Verdict::Never(reason) => reason,
    }
}

#[test]
fn dynamic_programs_are_accelerated() {
    let bench = Bench::new();
    let program = bench.build("cc", &[]).unwrap();
    assert_eq!(bench.judge(&program, &[]), Verdict::Accelerated);
    let stripped = bench.build("cc", &["-s", "-no-pie"]).unwrap();
    assert_eq!(bench.judge(&stripped, &[]), Verdict::Accelerated);
}

#[test]
fn static_programs_are_not() {
    let bench = Bench::new();
    for options in [["-static"], ["-static-pie"]] {
        let Some(program) = bench.build("cc", &options) else { continue };
        let verdict = bench.judge(&program, &[]);
        assert!(matches!(&verdict, Verdict::ChildrenOnly(why) if why.contains("static")));
    }
}

#[test]
fn musl_programs_are_accelerated_by_a_library_that_needs_no_other() {
    let bench = Bench::new();
    let Some(program) = bench.build("musl-gcc", &[]) else { return };
    assert_eq!(bench.judge(&program, &[]), Verdict::Accelerated);
    bench.build("cc", &["-shared", "-Wl,--no-as-needed", "-lc"]).unwrap();
    fs::rename(&program, bench.path("libyasmin.so")).unwrap();
    let program = bench.build("musl-gcc", &[]).unwrap();
    assert!(matches!(bench.judge(&program, &[]), Verdict::Never(why) if why.contains("musl")));
}

#[test]
fn other_architectures_are_told_apart() {
    let bench = Bench::new();
    let program = bench.build("cc", &[]).unwrap();
    let mut bytes = fs::read(&program).unwrap();
    bytes[18..20].copy_from_slice(&object::elf::EM_RISCV.to_le_bytes());
    fs::write(&program, bytes).unwrap();
    let why = reason(bench.judge(&program, &[]));
    assert!(why.contains("riscv64"), "{why}");
}

#[test]
fn programs_that_gain_privileges_are_not() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let bench = Bench::new();
    let program = bench.build("cc", &[]).unwrap();
    // setuid to the user who runs it anyway gains nothing.
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    assert_eq!(bench.judge(&program, &[]), Verdict::Accelerated);
    for (mode, word) in [(0o4755, "setuid"), (0o2755, "setgid")] {
        chown(&program, Some(ANOTHER_USER), Some(ANOTHER_USER)).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(mode)).unwrap();
        let why = reason(bench.judge(&program, &[]));
        assert!(why.contains(word), "{why}");
    }
}

#[test]
fn scripts_are_judged_by_their_interpreter() {
    let bench = Bench::new();
    let script = bench.script("#!/bin/sh -e");
    assert_eq!(bench.judge(&script, &[]), Verdict::Accelerated);
    let Some(program) = bench.build("cc", &["-static"]) else { return };
    let script = bench.script(&format!("#! {} x", program.display()));
    assert!(reason(bench.judge(&script, &[])).contains("static"));
    let script = bench.script(&format!("#!/usr/bin/env -S {} x", program.display()));
    assert!(reason(bench.judge(&script, &[])).contains("static"));
    let env = Path::new("/usr/bin/env");
    let arguments = ["-i", "A=b", program.to_str().unwrap()];
    assert!(reason(bench.judge(env, &arguments)).contains("static"));
    let script = bench.script(&format!("#!{}", bench.path("script").display()));
    assert!(reason(bench.judge(&script, &[])).contains("cannot be read"));
}

#[test]
fn static_programs_without_glibc_get_the_library() {
    let bench = Bench::new();
    let Some(program) = bench.build("musl-gcc", &["-static"]) else { return };
    assert_eq!(bench.judge(&program, &[]), Verdict::Injected);
    // glibc's stay as they are.
    let Some(program) = bench.build("cc", &["-static"]) else { return };
    assert!(reason(bench.judge(&program, &[])).contains("linked with glibc"));
}

#[test]
fn damaged_files_are_no_programs() {
    let bench = Bench::new();
    let program = bench.build("cc", &[]).unwrap();
    let bytes = fs::read(&program).unwrap();
    for len in [4, 20, 63, 64, 100] {
        fs::write(&program, &bytes[..len]).unwrap();
        assert_ne!(bench.judge(&program, &[]), Verdict::Accelerated, "{len} bytes");
    }
}

#[test]
fn go_programs_are_recognised() {
    let bench = Bench::new();
    fs::write(bench.path("go.c"), "int main(void){return 0;}\n__attribute__((section(\".note.go.buildid\"), used)) static const char id[] = \"x\";\n").unwrap();
    let program = bench.path("go");
    let built = Command::new("cc").arg("-o").arg(&program).arg(bench.path("go.c")).status();
    assert!(built.unwrap().success());
    assert!(reason(bench.judge(&program, &[])).contains("Go program"));
}
