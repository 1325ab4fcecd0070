//! `bowwave run --swap`: more memory for the program than the machine has.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use bowwave_region::uffd::Scope;
use bowwave_region::{Spill, Swap, SwapOptions};

use super::library::Library;
use crate::{Failure, values};

/// Options of the swap.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Memory larger than RAM")]
pub(super) struct SwapArgs {
    /// Give the program more memory than --memory, with this much of it on --spill
    #[arg(long, value_name = "SIZE", value_parser = values::positive_size)]
    swap: Option<u64>,

    /// Where to spill: a directory, for an unlinked file, or a file, which remains and serves one
    /// process at a time
    #[arg(long, value_name = "PATH", default_value = "/var/tmp", requires = "swap")]
    spill: PathBuf,

    /// Resident limit of the swapped memory of each process, at least 4MiB; by default half of the
    /// machine's memory
    #[arg(long, value_name = "SIZE", requires = "swap", value_parser = values::positive_size)]
    memory: Option<u64>,

    /// Swap allocations of at least this size; the C library serves smaller ones
    #[arg(long, hide_short_help = true, value_name = "SIZE", default_value = "64KiB", requires = "swap", value_parser = values::size)]
    swap_from: u64,

    /// Readahead of swapped memory. linux: cluster on rotating disks, vma elsewhere
    #[arg(long, hide_short_help = true, value_name = "POLICY", default_value = "adaptive", requires = "swap", value_parser = values::swap_policy())]
    swap_policy: String,
}

impl SwapArgs {
    /// The value for the environment; `None` without a swap. Opens it, so that errors appear before
    /// the program starts.
    pub(super) fn check(&self) -> Result<Option<OsString>, Failure> {
        let Some(swap) = self.swap else { return Ok(None) };
        let path = fs::canonicalize(&self.spill).or_else(|error| match self.spill.parent() {
            // A file that does not exist yet.
            Some(directory) if error.kind() == std::io::ErrorKind::NotFound => {
                let directory = if directory.as_os_str().is_empty() { ".".as_ref() } else { directory };
                let name = self.spill.file_name().ok_or(error)?;
                fs::canonicalize(directory).map(|directory| directory.join(name))
            }
            _ => Err(error),
        });
        let path = path.map_err(|error| {
            failed!("--spill {}: {error}", self.spill.display())
                .try_this("a directory on a disk, or a file in one")
        })?;
        let memory = self.memory.unwrap_or_else(|| bowwave_engine::available_memory() / 2);
        let options =
            SwapOptions { memory_bytes: Some(memory), scope: Some(Scope::All), ..SwapOptions::default() };
        let made = Swap::new(&Spill::file(&path, swap), &options);
        made.map_err(|error| failed!("cannot give swapped memory: {error}"))?;
        let mut text = OsString::from(format!(
            "spill={swap} memory={memory} from={} policy={} ",
            self.swap_from, self.swap_policy
        ));
        text.push(path);
        Ok(Some(text))
    }
}

/// Provides memory.
pub(super) const LIBRARY: Library =
    Library { name: "libbowwave_heap.so", variable: "BOWWAVE_HEAP", embedded: |all| all.heap };
/// The variable that configures it.
pub(super) const SWAP: &str = "BOWWAVE_RUN_SWAP";
