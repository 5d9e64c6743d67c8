//! Compiles the BPF program, if there is a clang that can. Without it the broker is built all
//! the same and proves by addresses only.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "bpf/socket.bpf.c";

fn main() {
    println!("cargo:rerun-if-changed={SOURCE}");
    println!("cargo:rerun-if-env-changed=YASMIN_CLANG");
    println!("cargo:rustc-check-cfg=cfg(bpf_object)");
    let clang = env::var("YASMIN_CLANG").unwrap_or_else(|_| "clang".to_owned());
    let out_dir = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let object = Path::new(&out_dir).join("socket.bpf.o");
    // -g: CO-RE needs the program's BTF.
    let status = Command::new(&clang)
        .args(["-target", "bpf", "-g", "-O2", "-Wall", "-Wextra", "-Werror", "-c", SOURCE, "-o"])
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => println!("cargo:rustc-cfg=bpf_object"),
        Ok(status) => warn(&format!("{clang} cannot compile {SOURCE} ({status})")),
        Err(error) => warn(&format!("cannot run {clang}: {error}")),
    }
}

fn warn(reason: &str) {
    println!(
        "cargo:warning={reason}; yasmind is built without BPF and pairs only connections inside \
         one network namespace. Install clang, or name one in YASMIN_CLANG"
    );
}
