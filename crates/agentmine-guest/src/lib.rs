//! What the worker and the guest share: the protocol and the multiplexer under it.

pub mod mux;
pub mod protocol;
