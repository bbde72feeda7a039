//! Verifies the result by measuring it.

mod attributes;
pub(crate) mod checks;
mod looked;
pub(crate) mod measure;
mod publish;
mod sensitive;
mod web;
