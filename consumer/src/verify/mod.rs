//! Verifies the result by measuring it.

pub(crate) mod measure;
