//! Writes the modules of `tests/published.rs`: one for each file in `AWA_CONFORMANCE_TESTS`, paths with spaces between.
//! Without that variable there are none, so nobody compiles or lints them by chance.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=AWA_CONFORMANCE_TESTS");

    let mut modules = String::new();
    for path in env::var("AWA_CONFORMANCE_TESTS").unwrap_or_default().split_whitespace() {
        let name = Path::new(path).file_stem().and_then(|stem| stem.to_str()).expect("the path of a file");
        // Not our code: no lint applies.
        writeln!(modules, "#[allow(warnings, clippy::all)]\n#[path = {path:?}]\nmod {name};").expect("writing to a string");
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("published.rs"), modules).expect("writing published.rs");
}
