//! Names the C library as it is installed: cargo's own name for it has no hyphen.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libyasmin-segment.so.0");
}
