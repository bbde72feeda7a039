//! Records a session: its steps, checkpoints, usage, and the live view.

pub(crate) mod checkpoint;
pub(crate) mod journal;
pub(crate) mod live;
pub(crate) mod meter;
pub(crate) mod phase;
pub(crate) mod recorder;
pub(crate) mod redact;
pub(crate) mod redacting_model;
pub(crate) mod secret;
pub(crate) mod trace;
