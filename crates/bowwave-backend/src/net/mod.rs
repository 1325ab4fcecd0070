//! Stores behind a network: the runtime, the client and the errors that HTTP and object stores share.

pub(crate) mod client;
mod cloud;
pub(crate) mod credentials;
mod draft;
pub(crate) mod http;
mod intake;
mod lend;
mod listing;
mod names;
pub(crate) mod object;
pub(crate) mod open;
mod plan;
pub(crate) mod runtime;
mod upstream;
mod validator;
mod version;
mod wire;
mod writer;
mod xml;

#[cfg(test)]
mod tests;
