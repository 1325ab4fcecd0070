//! Tables of contents that some files have: where the parts are that programs read as a whole.

pub(crate) mod parquet;
pub(crate) mod safetensors;

use std::ops::Range;

/// A part of a file: one column of one row group, or a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) bytes: Range<u64>,
    /// Number of the row group, or of the tensor.
    pub(crate) group: u32,
    /// Number of the column in its row group; 0 for tensors.
    pub(crate) column: u32,
}
