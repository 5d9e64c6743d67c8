//! How the library is linked.

fn main() {
    // The library's own uses of its entries stay inside it: a program may define the same names, and
    // call the next definition from there (Erlang's runtime does so with sigaction).
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    // What the compiler calls goes by `real`, where these names may be missing.
    for name in ["memcpy", "memmove", "memset", "bcmp", "strlen", "__errno_location"] {
        println!("cargo:rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
