//! Stores behind a network: HTTP and object stores.

mod call;
mod checksum;
mod connect;
mod errors;
mod exchange;
mod first;
pub(crate) mod http;
mod index;
mod limits;
mod ranged;
pub(crate) mod runtime;
mod validator;
mod whole;

#[cfg(feature = "s3")]
mod cloud;
#[cfg(feature = "s3")]
mod connector;
#[cfg(feature = "s3")]
mod credentials;
#[cfg(feature = "s3")]
mod directories;
#[cfg(feature = "s3")]
mod listing;
#[cfg(feature = "s3")]
mod meta;
#[cfg(feature = "s3")]
mod name_cache;
#[cfg(feature = "s3")]
mod names;
#[cfg(feature = "s3")]
pub(crate) mod object;
#[cfg(feature = "s3")]
mod object_upload;
#[cfg(feature = "s3")]
pub(crate) mod open;
#[cfg(feature = "s3")]
mod plain;
mod plan;
#[cfg(feature = "s3")]
mod stat_ahead;
#[cfg(feature = "s3")]
mod upload;
#[cfg(feature = "s3")]
mod walk;
#[cfg(feature = "s3")]
mod wire;
#[cfg(feature = "s3")]
mod writer;
#[cfg(feature = "s3")]
mod xml;

#[cfg(all(any(test, feature = "fuzzing"), feature = "s3"))]
pub(crate) mod fuzz;
#[cfg(all(test, feature = "s3"))]
mod tests;
