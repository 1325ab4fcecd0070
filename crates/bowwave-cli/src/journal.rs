//! `--journal`: decisions of a running cache in a file.

use std::ffi::OsString;
use std::path::PathBuf;

use bowwave_engine::DecisionLog;

use crate::{Failure, values};

/// Where decisions are written.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct JournalArgs {
    /// Append each decision of readahead to this file: the lines of 'bowwave explain --json', with
    /// time and policy
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// End the journal when the file has this size
    #[arg(long, value_name = "SIZE", default_value = "64MiB", requires = "journal", hide_short_help = true, value_parser = values::positive_size)]
    journal_size: u64,
}

impl JournalArgs {
    /// Opens the file, if one is named.
    pub(crate) fn open(&self) -> Result<Option<DecisionLog>, Failure> {
        let Some(path) = &self.journal else { return Ok(None) };
        let opened = DecisionLog::append(path, self.journal_size);
        opened.map(Some).map_err(|error| failed!("--journal {}: {error}", path.display()))
    }

    /// The value of [`VARIABLE`] for a program that opens the file itself. Fails if it could not.
    pub(crate) fn variable(&self) -> Result<Option<OsString>, Failure> {
        let Some(path) = &self.journal else { return Ok(None) };
        drop(self.open()?);
        let path = std::path::absolute(path).map_err(|error| failed!("{}: {error}", path.display()))?;
        Ok(Some(DecisionLog::text(&path, self.journal_size)))
    }
}

/// Ends a journal: says how many decisions are missing without a line that says so.
pub(crate) fn end(journal: Option<&DecisionLog>) {
    if let Some(warning) = journal.and_then(DecisionLog::finish) {
        log::warn!(target: crate::logging::CACHE, "{warning}");
    }
}

/// The environment variable of `bowwave run`.
pub(crate) const VARIABLE: &str = "BOWWAVE_RUN_JOURNAL";
