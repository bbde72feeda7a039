//! What every process needs: configuration, logs, metrics, health checks, shutdown and backoff.
//!
//! Errors: [`config::ConfigErrors`] is typed, since it has its own exit code; all others are `anyhow`. A
//! main function loads the configuration first and reports all its faults before it binds or starts
//! anything.

pub mod allocator;
pub mod app_key;
pub mod backoff;
pub mod config;
pub mod exit;
pub mod failpoint;
pub mod healthcheck;
pub mod http;
pub mod live_secret;
pub mod liveness;
pub mod logging;
pub mod metrics;
pub mod own_folder;
pub mod permit;
pub mod process_lock;
pub mod program_pages;
pub mod redact;
pub mod service_url;
pub mod shortage;
pub mod shutdown;
pub mod terminal;
pub mod tls;
pub mod trace;
