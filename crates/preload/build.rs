//! The library's own uses of its entries stay inside it: a program may define the same names, and
//! call the next definition from there (Erlang's runtime does so with sigaction).

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
