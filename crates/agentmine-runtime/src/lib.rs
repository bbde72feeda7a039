//! What every process needs: configuration, logs, metrics, health, drain and backoff.
//!
//! Errors: [`config::ConfigErrors`] is typed, since the command line gives it its own exit code;
//! all else is `anyhow`. A main function reads the configuration first, so that every fault of it
//! is told before anything is bound or started.

pub mod backoff;
pub mod config;
pub mod exit;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod shutdown;
pub mod tls;
