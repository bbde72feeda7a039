//! Configuration: `config.yaml`, then environment, then flags.

mod schema;
mod secret;

pub use schema::*;
pub use secret::Secret;
