//! What a client of a remote store decides: when to retry, when to give up, which version a
//! response is of, when a listing makes no progress.
//!
//! ```text
//!   call ──► Retry ──► attempt: Conditions ──► head ──► body ──► done
//!              ▲                                 │        │
//!              └───────── Failure ◄── Validators ┴─ Pace ─┘
//! ```
//!
//! All of it is pure: a driver passes the time, the size of what arrived and a random number, and
//! carries out the answer. The network backends and the engine are the drivers in real time. The
//! simulator runs the same code against servers that stall, lie and replace objects, from a seed.

mod hedge;
mod listing;
mod pace;
mod response;
mod retry;
mod version;

pub use hedge::{Hedging, LATE_AT_FIRST};
pub use listing::{Listing, ListingEnd, ListingLimits, Page};
pub use pace::{Pace, PaceLimits, TooSlow};
pub use response::{Expected, Fault, Response};
pub use retry::{Failure, GiveUp, Retry, RetryLimits, Verdict};
pub use version::{Condition, Difference, Strength, Validators};

#[cfg(test)]
mod tests;
