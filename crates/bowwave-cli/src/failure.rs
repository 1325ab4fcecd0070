//! Failures of commands: one line on standard error, and an exit code.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};

use crate::interrupt::INTERRUPTED;
use crate::output::plain;
use crate::tunables;

/// A [`Failure::failed`] with a formatted message.
macro_rules! failed {
    ($($message:tt)*) => { $crate::Failure::failed(format_args!($($message)*)) };
}

/// A [`Failure::usage`] with a formatted message.
macro_rules! usage {
    ($($message:tt)*) => { $crate::Failure::usage(format_args!($($message)*)) };
}

/// A formatted [`note`](crate::output::note) on standard error.
macro_rules! note {
    ($($text:tt)*) => { $crate::output::note(format_args!($($text)*)) };
}

/// Why a command failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The command was valid and failed.
    Failed,
    /// The command was invalid.
    Usage,
    /// The command was valid and failed, with an exit code of its own.
    Coded(u8),
    /// The reader of standard output closed it.
    Unread,
    /// A child program ended with this code and reported why.
    Ended(u8),
}

impl Failure {
    /// A failure at run time: exit code 1. The message names the cause, without a full stop.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { kind: Kind::Failed, message: message.to_string(), remedy: None }
    }

    /// An invalid command: exit code 2.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { kind: Kind::Usage, ..Self::failed(message) }
    }

    /// The reader of standard output closed it: no error.
    pub(crate) fn unread() -> Self {
        Self { kind: Kind::Unread, ..Self::failed("standard output is closed") }
    }

    /// A child program ended with this exit code and reported the cause itself.
    pub(crate) fn ended(code: u8) -> Self {
        Self { kind: Kind::Ended(code), ..Self::failed(format_args!("the program ended with {code}")) }
    }

    /// The same failure with another exit code.
    pub(crate) fn with_code(self, code: u8) -> Self {
        Self { kind: Kind::Coded(code), ..self }
    }

    /// Ctrl-C, SIGTERM or SIGHUP ended the command: exit code 130, as in shells.
    pub(crate) fn interrupted() -> Self {
        Self::failed("interrupted").with_code(INTERRUPTED)
    }

    /// Adds a remedy.
    pub(crate) fn try_this(mut self, remedy: impl fmt::Display) -> Self {
        self.remedy = Some(remedy.to_string());
        self
    }

    /// An error of clap, in one line.
    pub(crate) fn from_clap(error: &clap::Error) -> Self {
        let text = error.render().to_string();
        if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
            return Self::usage("no command was given").try_this("bowwave --help");
        }
        // Paragraphs: the message, then tips, then the usage and a pointer to the help.
        let mut paragraphs = text
            .trim()
            .split("\n\n")
            .map(|paragraph| paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
        let message = paragraphs.next().unwrap_or_default();
        let message = message.strip_prefix("error: ").unwrap_or(&message).to_owned();
        // A tip reads "a similar value exists: 'none'"; other tips explain values that look like
        // options.
        let tip = paragraphs.find_map(|paragraph| paragraph.strip_prefix("tip: ").map(str::to_owned));
        let tip = tip.as_deref().map(|tip| {
            let several = || tip.rsplit_once("exist: ");
            tip.rsplit_once("exists: ").or_else(several).map_or(tip, |(_, names)| names)
        });
        let moved = error.get(ContextKind::InvalidArg).and_then(|argument| {
            let key = argument.to_string().trim_start_matches("--").replace('-', "_");
            tunables::keys().any(|known| known == key).then(|| format!("--set {key}=VALUE"))
        });
        let moved = moved.filter(|_| error.kind() == ErrorKind::UnknownArgument);
        Self::usage(message).try_this(moved.as_deref().or(tip).unwrap_or("--help"))
    }

    /// Prints it on standard error; returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self.kind {
            Kind::Unread => return ExitCode::SUCCESS,
            Kind::Ended(code) => return ExitCode::from(code),
            Kind::Failed | Kind::Usage | Kind::Coded(_) => {}
        }
        // The exit code reports it even if standard error is closed.
        let _nobody_listens = writeln!(io::stderr(), "bowwave: error: {self}");
        ExitCode::from(match self.kind {
            Kind::Usage => 2,
            Kind::Coded(code) => code,
            _ => 1,
        })
    }
}

/// One line: message and remedy.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&plain(&self.message))?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, " (try {})", plain(remedy)))
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_its_remedy() {
        let failure = Failure::failed("no such\nfile").try_this("another");
        assert_eq!(failure.to_string(), "no such\\nfile (try another)");
    }
}
