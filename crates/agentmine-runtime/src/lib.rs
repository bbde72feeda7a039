//! What every process needs: configuration, logs, metrics, health, drain and backoff.

pub mod config;
