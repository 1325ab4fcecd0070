//! Stores behind a network: the runtime, the client and the errors that HTTP and object stores share.

mod call;
mod checksum;
mod client;
mod exchange;
pub(crate) mod http;
mod index;
mod intake;
mod limits;
mod ranged;
mod redirect;
pub(crate) mod runtime;
pub(crate) mod traffic;
mod validator;
mod whole;

#[cfg(feature = "s3")]
mod attributes;
#[cfg(feature = "s3")]
mod cloud;
#[cfg(feature = "s3")]
mod connector;
#[cfg(feature = "s3")]
mod credentials;
#[cfg(feature = "s3")]
mod errors;
#[cfg(feature = "s3")]
mod lend;
#[cfg(feature = "s3")]
mod listing;
#[cfg(feature = "s3")]
mod meta;
#[cfg(feature = "s3")]
mod names;
#[cfg(feature = "s3")]
pub(crate) mod object;
#[cfg(feature = "s3")]
mod object_upload;
#[cfg(feature = "s3")]
pub(crate) mod open;
#[cfg(feature = "s3")]
mod parts;
#[cfg(feature = "s3")]
mod plan;
#[cfg(feature = "s3")]
mod stat_ahead;
#[cfg(feature = "s3")]
mod upload;
#[cfg(feature = "s3")]
mod wire;
#[cfg(feature = "s3")]
mod writer;
#[cfg(feature = "s3")]
mod xml;

#[cfg(all(any(test, feature = "fuzzing"), feature = "s3"))]
pub(crate) mod fuzzing;
#[cfg(all(test, feature = "s3"))]
mod tests;
