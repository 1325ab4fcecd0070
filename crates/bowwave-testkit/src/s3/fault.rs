//! Scripted faults of the S3 server.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One fault.
#[derive(Debug, Clone)]
pub struct S3Fault {
    /// Method of matching requests: `PUT` and so on.
    pub method: &'static str,
    /// A part of their path and query; empty for all.
    pub part: String,
    /// Matching requests that pass before the first fault.
    pub after: u32,
    /// Requests that fail; later ones succeed.
    pub times: u32,
    /// What happens.
    pub what: S3Trouble,
}

/// How a request goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum S3Trouble {
    /// Returns this status; the request has no effect.
    Refused(u16),
    /// The connection breaks; the request has no effect.
    Reset,
    /// The request takes effect, but the connection breaks before the response.
    AnswerLost,
    /// Returns 200 with an error in the body, as S3 does for slow copies and completions; the
    /// request has no effect.
    ErrorInBody,
    /// The request takes effect after this time.
    Late(Duration),
}

/// Future faults, and the received requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Script {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    faults: Vec<S3Fault>,
    requests: Vec<String>,
}

impl Script {
    pub(super) fn add(&self, fault: S3Fault) {
        self.state().faults.push(fault);
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// Records a request and returns its fault, if any.
    pub(super) fn meet(&self, method: &str, target: &str) -> Option<S3Trouble> {
        let mut state = self.state();
        state.requests.push(format!("{method} {target}"));
        let fault = state
            .faults
            .iter_mut()
            .find(|fault| fault.times > 0 && fault.method == method && target.contains(&fault.part))?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        fault.times -= 1;
        Some(fault.what)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
