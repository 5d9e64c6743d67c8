//! Programs that are built or run with tools for finding errors, or with limits: as without the library, and such a tool
//! finds none more.
//!
//! Holds: valgrind(1), dl_iterate_phdr(3), setrlimit(2), ld.so(8), chroot(2), execve(2).

use std::path::{Path, PathBuf};
use std::process::Command;

use yasmin_tests::lab::{Folder, Knobs, Lab};
use yasmin_tests::netns::Net;
use yasmin_tests::process::Process;

use crate::c::compile;

/// Runs `words` behind the program: it says `all there`, and nothing else. In the lab that it gives.
#[track_caller]
fn runs(program: &str, words: &[&str]) -> Lab {
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    says_all_there(&lab, program, words);
    lab
}

#[track_caller]
fn says_all_there(lab: &Lab, program: &str, words: &[&str]) {
    let mut command = lab.run_command(Path::new(program));
    let mut process = Process::start(program, command.args(words), &lab.registry);
    process.finish();
    assert_eq!(process.output().trim(), "all there", "{program} {words:?}");
}

/// The same, where none of its bytes shows that the library is there: a shell that becomes the program has it.
#[track_caller]
fn runs_from_shell(program: &str, words: &[&str]) -> Lab {
    const SCRIPT: &str =
        "grep -q libyasmin.so /proc/self/maps || echo without the library; exec \"$@\"";
    let lab = Lab::new(Net::Loopback, Knobs::at_once());
    if lab.proves() {
        says_all_there(&lab, "/bin/sh", &[&["-c", SCRIPT, "sh", program], words].concat());
    } else {
        says_all_there(&lab, program, words);
    }
    lab
}

#[track_caller]
fn compiled(folder: &Folder, options: &[&str]) -> String {
    let program = compile(folder, "shells", &["shells.c"], options);
    program.to_str().expect("a name in UTF-8").to_owned()
}

/// Its runtime ends a program in which another library comes first.
#[test]
fn address_sanitizer() {
    let folder = Folder::new();
    runs_from_shell(&compiled(&folder, &["-fsanitize=address"]), &["popen"]);
}

#[test]
fn thread_sanitizer() {
    let folder = Folder::new();
    runs_from_shell(&compiled(&folder, &["-fsanitize=thread"]), &["popen"]);
}

/// Static programs, which the library is not for.
#[test]
fn valgrind() {
    let folder = Folder::new();
    let program = compiled(&folder, &[]);
    for tool in ["--tool=memcheck", "--tool=helgrind"] {
        let lab = runs_from_shell("/usr/bin/valgrind", &["-q", tool, &program, "popen"]);
        assert_eq!(lab.bytes_in_all().ring, 0, "{tool}");
    }
}

/// What is unread could not be handed on (`ulimit -f`).
#[test]
fn files_that_may_not_be_large() {
    let folder = Folder::new();
    let program = compiled(&folder, &[]);
    let limited = |limits| runs("/usr/bin/prlimit", &[limits, &program, "system"]);
    assert_eq!(limited("--fsize=100000:100000").bytes_in_all().ring, 0);
    let lab = limited("--fsize=100000:unlimited");
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
}

#[test]
fn a_loader_that_is_called_by_name() {
    let folder = Folder::new();
    let program = compiled(&folder, &[]);
    let lab = runs("/lib64/ld-linux-x86-64.so.2", &[&program, "popen"]);
    lab.assert_some_by_ring(lab.bytes_in_all().ring);
}

const SAYS: &str = "#include <stdio.h>\nint main(void) { puts(\"all there\"); return 0; }";

/// Compiles this C text.
#[track_caller]
fn compiled_text(folder: &Folder, name: &str, text: &str, options: &[&str]) -> PathBuf {
    let (source, program) = (folder.path().join(format!("{name}.c")), folder.path().join(name));
    std::fs::write(&source, text).unwrap();
    let mut command = Command::new("cc");
    let status = command.args(options).arg("-o").arg(&program).arg(&source).status();
    assert!(status.is_ok_and(|status| status.success()), "cc {options:?}");
    program
}

/// From there the library cannot be found, and its loader does not say so.
#[test]
fn another_root() {
    let folder = Folder::new();
    let program = compiled_text(&folder, "says", SAYS, &[]);
    let root = folder.path().join("root");
    let loaded = Command::new("ldd").arg(&program).output().unwrap().stdout;
    let loaded = String::from_utf8(loaded).unwrap();
    let files = loaded.split_whitespace().filter(|word| word.starts_with('/'));
    // Debian's shell needs no other libraries.
    for file in files.chain(["/bin/sh"]) {
        let there = root.join(&file[1..]);
        std::fs::create_dir_all(there.parent().unwrap()).unwrap();
        std::fs::copy(file, &there).unwrap();
    }
    std::fs::copy(&program, root.join("says")).unwrap();
    let root = root.to_str().expect("a name in UTF-8");
    runs_from_shell("/usr/sbin/chroot", &[root, "/says"]);
    runs_from_shell("/usr/sbin/chroot", &[root, "/bin/sh", "-c", "/says"]);
    let within =
        |how: &str| format!("import os, subprocess; os.chroot({root:?}); os.chdir('/'); {how}");
    for how in [
        "os.system('/says')",
        "subprocess.run(['/says'])",
        "os.posix_spawn('/says', ['says'], os.environ); os.wait()",
        "os.execl('/says', 'says')",
    ] {
        runs_from_shell("/usr/bin/python3", &["-c", &within(how)]);
    }
}

/// The loader of a program for another machine does not hear of the library, and the next program gets it.
#[test]
fn a_program_of_32_bits() {
    const TEXT: &str = r#"
        __asm__(".globl _start\n_start: mov %esp, %eax\npush %eax\ncall begins\n");
        static int calls(int number, int a, const char *b, int c) {
            __asm__ volatile("int $0x80" : "+a"(number) : "b"(a), "c"(b), "d"(c) : "memory");
            return number;
        }
        __attribute__((regparm(0), used)) void begins(int *stack) {
            static const char name[] = "LD_PRELOAD=", fine[] = "all there\n", other[] = "preloads\n";
            int is_named = 0;
            for (char **entry = (char **)stack + *stack + 2; *entry; entry++) {
                int at = 0;
                while (name[at] && (*entry)[at] == name[at])
                    at++;
                is_named |= !name[at];
            }
            calls(4, 1, is_named ? other : fine, is_named ? sizeof other - 1 : sizeof fine - 1);
            calls(1, 0, 0, 0);
        }
    "#;
    const OPTIONS: [&str; 6] =
        ["-m32", "-nostdlib", "-static", "-fno-pic", "-fno-stack-protector", "-O1"];
    let folder = Folder::new();
    let program = compiled_text(&folder, "small", TEXT, &OPTIONS);
    if Command::new(&program).output().is_err() {
        eprintln!("this kernel runs no programs of 32 bits");
        return;
    }
    let program = program.to_str().expect("a name in UTF-8");
    let behind =
        format!("{program}; test \"$LD_PRELOAD\" || test ! \"$YASMIN_SOCKET\" || echo lost");
    let starts = format!("import os; os.posix_spawn({program:?}, ['x'], os.environ); os.wait()");
    runs_from_shell("/bin/sh", &["-c", &behind]);
    runs_from_shell("/usr/bin/python3", &["-c", &starts]);
    runs_from_shell("/usr/bin/perl", &["-e", &format!("exec {program:?}")]);
}
