//! Tests of the agent through its public interface.

mod pull_requests;
mod resumed;
mod sessions;
mod world;
