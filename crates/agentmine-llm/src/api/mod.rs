//! What every model API over HTTP needs. An adapter (`openai`, later others) adds its wire types, its
//! address and its credentials, and an [`Assembly`] that makes a reply of the API's events.
//!
//! From the bottom up: [`page`] recognizes web pages, [`redact`] makes a server's text fit to be shown,
//! [`notice`] shows a person what a call waits for, [`retry`] is the only place that decides about another
//! try, [`retry_after`] and [`overflow`] read the words of servers, [`failure`] says what an error of the
//! server means, [`body`] and [`sse`] read a response under limits, [`usage`] counts tokens and money,
//! [`connect`] makes the HTTP client, [`client`] puts them together.

mod body;
mod client;
mod connect;
mod failure;
mod notice;
mod overflow;
mod page;
mod redact;
mod retry;
mod retry_after;
mod sse;
mod usage;

pub(crate) use client::{ApiClient, Assembly, Malformed};
pub(crate) use connect::{bearer, headers};
pub(crate) use failure::error_in;
pub use overflow::Overflow;
#[cfg(test)]
pub(crate) use usage::Prices;
pub(crate) use usage::Tokens;
