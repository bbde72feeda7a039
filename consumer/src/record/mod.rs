//! What is recorded of a session: its steps, its files, and what a person sees while it runs.

pub(crate) mod checkpoint;
pub(crate) mod journal;
pub(crate) mod live;
