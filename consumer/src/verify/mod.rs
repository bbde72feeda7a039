//! Verifies the result by measuring it.

mod attributes;
mod changes;
pub(crate) mod checks;
mod identities;
pub(crate) mod measure;
mod publish;
mod sensitive;
mod web;
