//! Many processes of many kinds, each with its own random layout, attach at one address.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use yasmin_segment::{Broker, Kind};
use yasmin_tests::installed::find_or_say;
use yasmin_tests::process::{Process, deadline};
use yasmin_tests::segment::Host;

/// At once, so that a machine with little memory takes part.
const AT_ONCE: usize = 50;

fn processes() -> usize {
    let asked = std::env::var("YASMIN_TEST_SEGMENT_PROCESSES").ok();
    asked.map_or(1000, |text| text.parse().expect("YASMIN_TEST_SEGMENT_PROCESSES: a number"))
}

/// Attaches, adds one to a counter by a pointer that lies in the segment, prints the address.
const C: &str = r#"
#include <stdio.h>
#include <yasmin.h>
int main(void)
{
	yasmin_segment *segment = yasmin_segment_open("crowd", YASMIN_SEGMENT_WRITE);
	_Atomic unsigned long **counter = segment ? yasmin_segment_attach(segment, 0) : NULL;
	if (!counter)
		return fprintf(stderr, "%s\n", yasmin_segment_error()), 1;
	++**counter;
	printf("%p\n", (void *)counter);
}
"#;

/// The same; the counter is added to by the C library's own atomics, through ctypes no less.
const PYTHON: &str = r#"
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import yasmin_segment
segment = yasmin_segment.open("crowd", write=True)
atomic = ctypes.CDLL(sys.argv[2])
atomic.add(ctypes.c_void_p(segment.address))
print(hex(segment.address))
"#;

const ADD: &str = "void add(_Atomic unsigned long **counter) { ++**counter; }";

const GO: &str = r#"
package main

/*
#cgo LDFLAGS: -lyasmin-segment
#include <stdlib.h>
#include <yasmin.h>
static void add(_Atomic unsigned long **counter) { ++**counter; }
*/
import "C"
import ("fmt"; "os"; "unsafe")

func main() {
	name := C.CString("crowd")
	defer C.free(unsafe.Pointer(name))
	segment := C.yasmin_segment_open(name, C.YASMIN_SEGMENT_WRITE)
	if segment == nil {
		fmt.Fprintln(os.Stderr, C.GoString(C.yasmin_segment_error()))
		os.Exit(1)
	}
	counter := C.yasmin_segment_attach(segment, 0)
	if counter == nil {
		fmt.Fprintln(os.Stderr, C.GoString(C.yasmin_segment_error()))
		os.Exit(1)
	}
	C.add((**C.ulong)(counter))
	fmt.Printf("%p\n", counter)
}
"#;

const JAVA: &str = r#"
public class Crowd {
	static native long attach();
	public static void main(String[] args) {
		System.load(args[0]);
		System.out.println("0x" + Long.toHexString(attach()));
	}
}
"#;

const JNI: &str = r#"
#include <jni.h>
#include <yasmin.h>
JNIEXPORT jlong JNICALL Java_Crowd_attach(JNIEnv *env, jclass crowd)
{
	(void)env, (void)crowd;
	yasmin_segment *segment = yasmin_segment_open("crowd", YASMIN_SEGMENT_WRITE);
	_Atomic unsigned long **counter = segment ? yasmin_segment_attach(segment, 0) : NULL;
	if (counter)
		++**counter;
	return (jlong)counter;
}
"#;

/// Commands that attach, and how large a part of the crowd each is.
fn kinds(host: &Host) -> Vec<(&'static str, Vec<String>, usize)> {
    let folder = host.folder.path();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let source = write("crowd.c", C);
    let words = |path: &Path| vec![path.display().to_string()];
    let pie = host.compile(&source, "pie", &["-pie", "-fPIE"]);
    let fixed = host.compile(&source, "fixed", &["-no-pie", "-fno-pie"]);
    let mut kinds = vec![("C, PIE", words(&pie), 45), ("C, no PIE", words(&fixed), 45)];
    if let Some(python) = find_or_say("python3") {
        let add = write("add.c", ADD);
        let add = host.compile(&add, "add.so", &["-shared", "-fPIC"]);
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/segment/python");
        let script = write("crowd.py", PYTHON);
        let command = [&python, &script, &module, &add].map(|path| path.display().to_string());
        kinds.push(("Python", command.to_vec(), 8));
    }
    if let Some(go) = find_or_say("go").or_else(go_of_its_own) {
        let source = write("crowd.go", GO);
        let program = folder.join("crowd-go");
        let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/segment/include");
        let output = Command::new(go)
            .args(["build", "-o"])
            .args([&program, &source])
            .env("CGO_CFLAGS", format!("-I{}", include.display()))
            .env("CGO_LDFLAGS", format!("-L{}", folder.display()))
            .env("GOFLAGS", "-mod=mod")
            .env("CGO_ENABLED", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        kinds.push(("Go", words(&program), 1));
    }
    if let (Some(javac), Some(java)) = (find_or_say("javac"), find_or_say("java")) {
        let source = write("Crowd.java", JAVA);
        let made = Command::new(&javac).arg("-d").args([folder, &source]).status().unwrap();
        assert!(made.success());
        let home = javac.canonicalize().unwrap();
        let include = home.parent().unwrap().parent().unwrap().join("include");
        let options =
            [format!("-I{}", include.display()), format!("-I{}/linux", include.display())];
        let options = ["-shared", "-fPIC", &options[0], &options[1]];
        let shim = host.compile(&write("crowd-jni.c", JNI), "crowd-jni.so", &options);
        let command = [java.as_path(), Path::new("-cp"), folder, Path::new("Crowd"), &shim];
        kinds.push(("Java", command.map(|word| word.display().to_string()).to_vec(), 1));
    }
    kinds
}

fn go_of_its_own() -> Option<std::path::PathBuf> {
    let path = std::path::PathBuf::from("/usr/local/go/bin/go");
    path.is_file().then_some(path)
}

#[test]
fn a_thousand_processes_have_it_at_one_address() {
    let host = Host::new(&["--no-bpf"]);
    let broker = Broker::at(host.socket());
    broker.create("crowd", 1 << 20, Kind::default()).unwrap();
    let segment = broker.open("crowd", yasmin_segment::Rights::Write, false).unwrap();
    let mapping = segment.attach(yasmin_segment::At::Same).unwrap();
    // A pointer at the beginning to a counter somewhere behind.
    let address = segment.address();
    mapping.copy_in(0, &(address + 4096).to_ne_bytes()).unwrap();

    let kinds = kinds(&host);
    let whole: usize = kinds.iter().map(|(_, _, part)| part).sum();
    let count = processes();
    let mut waiting: Vec<&(&str, Vec<String>, usize)> = Vec::new();
    for kind in &kinds {
        let share = (count * kind.2).div_ceil(whole);
        eprintln!("{}: {share}", kind.0);
        waiting.extend(std::iter::repeat_n(kind, share));
    }
    waiting.truncate(count.max(kinds.len()));
    let all = waiting.len() as u64;
    for some in waiting.chunks(AT_ONCE) {
        let running: Vec<(&str, Process)> = some
            .iter()
            .map(|(name, words, _)| {
                let mut command = Command::new(&words[0]);
                command.args(&words[1..]).stderr(Stdio::piped());
                (*name, host.start(name, &mut command))
            })
            .collect();
        for (name, process) in running {
            let said = process.run();
            assert_eq!(said.trim(), format!("{address:#x}"), "{name}, within {:?}", deadline());
        }
    }
    let mut counter = [0; 8];
    mapping.copy_out(4096, &mut counter).unwrap();
    assert_eq!(u64::from_ne_bytes(counter), all, "processes that attached and did their work");
    let about = broker.about("crowd").unwrap();
    assert_eq!(about.holders.len(), 1, "only this process has it still: {about:?}");
}
