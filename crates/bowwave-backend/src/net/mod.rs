//! Stores behind a network: the runtime, the client and the errors that HTTP and object stores share.

mod attributes;
mod call;
mod checksum;
mod client;
mod cloud;
pub(crate) mod credentials;
mod draft;
mod errors;
mod exchange;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
pub(crate) mod http;
mod index;
mod intake;
mod lend;
mod limits;
mod listing;
mod meta;
mod names;
pub(crate) mod object;
pub(crate) mod open;
mod plan;
mod ranged;
mod redirect;
pub(crate) mod runtime;
mod stat_ahead;
pub(crate) mod traffic;
mod upload;
mod validator;
mod whole;
mod wire;
mod writer;
mod xml;

#[cfg(test)]
mod tests;
