//! What the worker and the guest share: the protocol, the multiplexer under it, and the seal under that.

pub mod mux;
pub mod protocol;
pub mod seal;
