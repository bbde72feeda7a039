//! What every model API over HTTP needs. An adapter (`openai`, `anthropic`) adds its wire types, the path of its
//! address and the header of its key, and an [`Assembly`] that makes a reply of the API's events.
//!
//! From the bottom up: [`page`] recognizes web pages, [`redact`] makes a server's text fit to be shown,
//! [`notice`] shows a person what a call waits for, [`retry`] is the only place that decides about another
//! try, [`retry_after`] and [`overflow`] read the words of servers, [`failure`] says what an error of the
//! server means, [`body`] and [`sse`] read a response under limits, [`usage`] counts tokens and money,
//! [`tool`] puts names and arguments into forms that servers accept, [`address`] says where an API is,
//! [`connect`] makes the HTTP client, [`client`] puts them together.

mod address;
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
pub(crate) mod tool;
mod usage;

pub(crate) use address::endpoint;
pub(crate) use client::{ApiClient, Assembly, BYTES_OF_TOKEN, Malformed};
pub(crate) use connect::{KeyHeader, headers};
pub(crate) use failure::error_in;
pub use overflow::Overflow;
#[cfg(test)]
pub(crate) use usage::Prices;
pub(crate) use usage::Tokens;
