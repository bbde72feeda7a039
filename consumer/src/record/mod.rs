//! What is recorded of a session: its steps, its files, its usage, and what a person sees of it.

pub(crate) mod checkpoint;
pub(crate) mod journal;
pub(crate) mod live;
pub(crate) mod meter;
pub(crate) mod recorder;
pub(crate) mod redact;
pub(crate) mod secret;
