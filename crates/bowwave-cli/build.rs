//! Says where cargo puts the libraries that `bowwave run` loads into programs; `src/embedded.rs` takes them from there.

use std::env;
use std::path::PathBuf;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // PROFILE/build/bowwave-cli-HASH/out: the libraries are in PROFILE/deps once their crates, which this one depends on, are built.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let profile = out.ancestors().nth(3).expect("the layout of cargo's build directory");
    println!("cargo::rustc-env=BOWWAVE_LIBRARIES={}", profile.join("deps").display());
}
