//! The worker's end of the tunnel, with a guest that an attacker has replaced.
//!
//! The programs of a jail are in the worker's own folder, where the suite puts another guest in their place. It has
//! the length of the real one, so that it is kept.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentmine_consumer::Traffic;
use agentmine_gateway::{Gateway, GatewayConfig, GitAccess};
use agentmine_guest::protocol::VERSION;
use agentmine_runtime::config::Network;
use agentmine_sandbox::{Backend as _, LocalBackend, Sandbox};
use anyhow::Context as _;
use futures::FutureExt as _;

use super::arena::{Limits, executor, shell, spec};
use super::bait::scratch;
use super::cell::Cell;
use super::entry::Attack;
use super::family::Family;
use super::finding::Claim;
use super::memory::Memory;

const GUEST: &str = include_str!("scripts/hostile_guest.py");
/// What the guest does, and what the worker must not let itself be made to do.
const MODES: &[(&str, &str)] = &[
    ("a_hello_without_end", "Says a hello of four gigabytes"),
    ("a_hello_of_garbage", "Says a hello that nests without end"),
    ("random_bytes", "Sends random bytes instead of frames"),
    ("random_frames", "Sends random frames on random streams"),
    (
        "streams_without_end",
        "Opens streams without end, each with a header",
    ),
    (
        "empty_streams_without_end",
        "Opens streams without end and says nothing on them",
    ),
    (
        "data_of_unknown_streams",
        "Sends data on streams that nobody opened",
    ),
    ("more_than_the_window", "Sends more than the window allows"),
    (
        "single_bytes_on_many_streams",
        "Sends single bytes in frames of their own on many streams",
    ),
    ("empty_frames", "Sends frames without data on many streams"),
    (
        "pings_without_end",
        "Sends pings, each of which wants an answer",
    ),
    (
        "windows_that_overflow",
        "Lets windows grow beyond their type",
    ),
    (
        "a_frame_of_four_gigabytes",
        "Announces a frame of four gigabytes",
    ),
    (
        "a_reply_without_end",
        "Announces a reply of four gigabytes and sends it",
    ),
    ("a_reply_of_garbage", "Sends a reply that nests without end"),
    (
        "a_result_larger_than_its_limit",
        "Announces more output than was requested",
    ),
    ("silence", "Never answers"),
    ("goodbye", "Ends the session in the middle of a request"),
];
/// How long a worker may wait for a guest that misbehaves, beyond the limit of the command.
const PATIENCE: Duration = Duration::from_secs(45);

/// One attack for each mode.
pub(super) fn attacks() -> Vec<Attack> {
    let of = |&(mode, what): &(&str, &str)| {
        let name = format!("guest_sends_{mode}");
        // In an image the guest cannot be replaced, and the worker's end of the tunnel is the same.
        let kinds = "bubblewrap landlock";
        Attack::on_worker((Family::Guest, kinds), &name, what, |name, cell| {
            attempt(name, cell).boxed_local()
        })
    };
    MODES.iter().map(of).collect()
}

async fn attempt(name: String, cell: Cell) -> anyhow::Result<Claim> {
    let mode = name
        .strip_prefix("guest_sends_")
        .context("no such attack")?
        .to_owned();
    let state = tempfile::Builder::new()
        .prefix("hostile-")
        .tempdir_in(scratch())?;
    let backend = LocalBackend::new(&executor(cell, Limits::Default), state.path())?;
    replace_guest(state.path(), &mode)?;
    let memory = Memory::watch();
    let started = tokio::time::timeout(PATIENCE, backend.start(&spec())).await;
    let seen = match started {
        Err(_) => return Ok(Claim::Succeeded("the start does not end".into())),
        // Only these are meant to be refused at once; the others did not come to what they do.
        Ok(Err(error)) if mode.starts_with("a_hello") => error.to_string(),
        Ok(Err(error)) => return Ok(Claim::Broken(format!("its hello was refused: {error}"))),
        Ok(Ok(sandbox)) => match use_it(Arc::from(sandbox)).await? {
            Ok(seen) => seen,
            Err(succeeded) => return Ok(Claim::Succeeded(succeeded)),
        },
    };
    if let Some(grown) = memory.too_much() {
        return Ok(Claim::Succeeded(grown));
    }
    Ok(Claim::Blocked(seen))
}

/// Runs a command, as a session does while its connections are served. The outer error is the suite's, the inner
/// one what the attack achieved.
async fn use_it(sandbox: Arc<dyn Sandbox>) -> anyhow::Result<Result<String, String>> {
    let gateway = Gateway::new(GatewayConfig {
        git: GitAccess::None,
        network: Network::default(),
    })?;
    let _traffic = Traffic::serve(Arc::clone(&sandbox), gateway);
    let command = shell("true", Duration::from_secs(5));
    let ran = tokio::time::timeout(PATIENCE, sandbox.run(command)).await;
    let seen = match ran {
        Err(_) => return Ok(Err("the worker waits without end".into())),
        Ok(Ok(done)) => format!("exit code {}", done.exit_code),
        Ok(Err(error)) => error.to_string(),
    };
    // A jail whose record is lost is removed by the folder.
    let removed = tokio::time::timeout(PATIENCE, sandbox.remove()).await;
    Ok(match removed {
        Ok(Ok(())) => Ok(seen),
        Ok(Err(error)) => Err(format!("it cannot be removed: {error}")),
        Err(_) => Err("its removal does not end".into()),
    })
}

fn replace_guest(state: &Path, mode: &str) -> anyhow::Result<()> {
    let folder = std::fs::read_dir(state)?
        .flatten()
        .find(|entry| entry.file_name().to_string_lossy().starts_with("programs-"))
        .context("the jail's programs")?;
    let path = folder.path().join("agentmine-guest");
    let length = std::fs::metadata(&path)?.len();
    let mut text = GUEST
        .replace("@MODE@", mode)
        .replace("@VERSION@", &VERSION.to_string());
    while (text.len() as u64) < length {
        text.push('\n');
    }
    std::fs::write(&path, text)?;
    Ok(())
}
