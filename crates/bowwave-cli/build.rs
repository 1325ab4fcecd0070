//! Says where cargo puts the libraries that `bowwave run` loads into programs, for
//! `src/embedded.rs`, and which commit this is.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // PROFILE/build/bowwave-cli-HASH/out: the libraries are in PROFILE/deps once their crates,
    // which this one depends on, are built.
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let profile = out.ancestors().nth(3).expect("the layout of cargo's build directory");
    println!("cargo::rustc-env=BOWWAVE_LIBRARIES={}", profile.join("deps").display());
    println!("cargo::rustc-env=BOWWAVE_COMMIT={}", commit().as_deref().unwrap_or("unknown"));
}

/// The commit that is checked out, and a new look at it when that changes; nothing where this is
/// not a checkout of its own, such as an unpacked archive within another repository.
fn commit() -> Option<String> {
    let crate_dir = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let root = crate_dir.ancestors().nth(2)?;
    if Path::new(&git(root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()?
        != root.canonicalize().ok()?
    {
        return None;
    }
    let mut watched = vec!["HEAD".to_owned(), "logs/HEAD".to_owned(), "packed-refs".to_owned()];
    watched.extend(git(root, &["symbolic-ref", "-q", "HEAD"]));
    for name in watched {
        // One that is missing would have cargo build this again each time.
        if let Some(path) = git(root, &["rev-parse", "--git-path", &name]).map(|path| root.join(path))
            && path.exists()
        {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    git(root, &["rev-parse", "--short=12", "HEAD"])
}

fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !text.is_empty()).then_some(text)
}
