//! Stores behind a network: the runtime, the client and the errors that HTTP and object stores share.

pub(crate) mod client;
pub(crate) mod credentials;
pub(crate) mod http;
mod intake;
mod listing;
pub(crate) mod object;
pub(crate) mod open;
pub(crate) mod runtime;
mod validator;

#[cfg(test)]
mod tests;
