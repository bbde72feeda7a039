//! What the answer to a write says of the thing that was written.

use http::StatusCode;
use serde::de::DeserializeOwned;

use super::attempts::Fault;
use super::client::Sent;
use super::marked::Written;
use super::reply::Reply;
use crate::error::TrackerError;

impl Sent {
    /// What was made, or why that has to be looked up and is not sent again: the answer is lost or unreadable. `what`
    /// names the place in an error.
    pub(crate) fn made<T: DeserializeOwned>(
        self,
        what: &str,
    ) -> Result<Result<T, Fault>, TrackerError> {
        match self {
            Self::Reply(reply) => reply.made(what),
            Self::Unknown(fault) => Ok(Err(fault)),
        }
    }
}

impl Written {
    /// The answer to an edit of the comment `id`, which `what` names: somebody may have deleted it meanwhile.
    pub(crate) fn edited(reply: Reply, id: String, what: &str) -> Result<Self, TrackerError> {
        if reply.status == StatusCode::NOT_FOUND {
            let detail = format!("{what} was deleted while it was edited");
            return Ok(Self::Look(Fault::new(detail)));
        }
        reply.ok(what)?;
        Ok(Self::Yes(id))
    }
}

impl Reply {
    /// What this answer says was made. It was, even where the answer is unreadable.
    pub(crate) fn made<T: DeserializeOwned>(
        self,
        what: &str,
    ) -> Result<Result<T, Fault>, TrackerError> {
        let made = self.ok(what)?.json();
        Ok(made.map_err(|error| Fault::new(error.to_string())))
    }

    /// The answer to a removal; what is gone already needs none.
    pub(crate) fn removed(self, what: &str) -> Result<(), TrackerError> {
        match self.status {
            StatusCode::NOT_FOUND => Ok(()),
            _ => self.ok(what).map(drop),
        }
    }
}
