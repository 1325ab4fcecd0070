//! Input and output of `bowwave explain`.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// First line of a trace.
pub(crate) const HEADER: &str = "time_ns,pid,op,file,offset,length\n";

/// Directory of the golden vectors.
pub(crate) fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors")
}

/// The objects that `--json` prints, one in a line.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is an object of JSON")).collect()
}
