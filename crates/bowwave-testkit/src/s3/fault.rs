//! What the S3 server does wrong when it is told to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One thing to go wrong.
#[derive(Debug, Clone)]
pub struct S3Fault {
    /// Method of the requests that it meets: `PUT` and so on.
    pub method: &'static str,
    /// What their path and query must contain; empty for all.
    pub part: String,
    /// How many of these requests pass before the first fault.
    pub after: u32,
    /// How many requests it meets; then all is well again.
    pub times: u32,
    /// What happens.
    pub what: S3Trouble,
}

/// How a request goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum S3Trouble {
    /// Answered with this status; nothing is done.
    Refused(u16),
    /// The connection breaks; nothing is done.
    Reset,
    /// It is done, but the connection breaks before the answer.
    AnswerLost,
    /// Answered 200 with an error in the body, as S3 does for slow copies and completions; nothing is done.
    ErrorInBody,
    /// It is done after this time.
    Late(Duration),
}

/// Faults to come, and the requests that came.
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

    /// Notes a request and says what is to go wrong with it.
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
