//! Verification of the result by facts.

pub(crate) mod measure;
