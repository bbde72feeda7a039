//! Git's wire format, as far as the gateway reads and writes it itself.

pub(crate) mod advertisement;
mod capability;
#[cfg(test)]
mod hostile;
pub(crate) mod object_id;
pub(crate) mod pktline;
pub(crate) mod push_report;
pub(crate) mod push_request;
pub(crate) mod ref_name;
