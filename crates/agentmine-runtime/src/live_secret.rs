//! A secret that may be replaced while it is in use: a token that is minted again before it expires, or one in a file
//! that changes.

use tokio::sync::watch;

use crate::config::Secret;

/// The current value of a secret. Clones see the same.
#[derive(Debug, Clone)]
pub struct LiveSecret {
    /// Who it stands for, however often it is replaced.
    identity: Secret,
    value: Value,
}

#[derive(Debug, Clone)]
enum Value {
    Fixed(Secret),
    Live(watch::Receiver<Secret>),
}

impl From<Secret> for LiveSecret {
    fn from(secret: Secret) -> Self {
        Self {
            identity: secret.clone(),
            value: Value::Fixed(secret),
        }
    }
}

impl LiveSecret {
    /// One that the other end replaces. The other end notices when the last clone is dropped
    /// ([`watch::Sender::closed`]).
    #[must_use]
    pub fn replaceable(identity: Secret, first: Secret) -> (watch::Sender<Secret>, Self) {
        let (sender, receiver) = watch::channel(first);
        let value = Value::Live(receiver);
        (sender, Self { identity, value })
    }

    /// The value now.
    #[must_use]
    pub fn get(&self) -> Secret {
        match &self.value {
            Value::Fixed(secret) => secret.current(),
            Value::Live(current) => current.borrow().clone(),
        }
    }

    /// What stays the same when the value is replaced, and differs between those who may see different things.
    #[must_use]
    pub fn identity(&self) -> &Secret {
        &self.identity
    }
}
