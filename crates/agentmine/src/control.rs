//! What the commands over `agentmine-control` share: errors with exit codes, and whose secrets are redacted.

use agentmine_control::ControlError;
use agentmine_runtime::config::Config;
use agentmine_runtime::redact::Redactor;

use crate::print::program;

/// The error of a command. That of the store keeps its chain.
pub(crate) fn failure(error: ControlError) -> anyhow::Error {
    match error {
        ControlError::Store(error) => error.into(),
        error => error.failure(&program()).into(),
    }
}

/// Entries that an operation lists at once.
const AT_ONCE: u32 = 500;

/// As many entries of a list as are wanted, asked for in parts: `part` gets their number and the cursor of the part before,
/// and returns entries and the next cursor. A limit of 0 is none.
pub(crate) async fn listed<T, C>(
    limit: u32,
    mut part: impl AsyncFnMut(u32, Option<C>) -> Result<(Vec<T>, Option<C>), ControlError>,
) -> anyhow::Result<Vec<T>> {
    let mut all = Vec::new();
    let mut cursor = None;
    loop {
        let have = u32::try_from(all.len())?;
        let count = at_once(limit.saturating_sub(have));
        let (found, next) = part(count, cursor).await.map_err(failure)?;
        all.extend(found);
        let is_enough = limit != 0 && all.len() >= limit as usize;
        match next {
            Some(next) if !is_enough => cursor = Some(next),
            _ => return Ok(all),
        }
    }
}

/// How many entries to ask for at once, of a limit of which 0 is none.
pub(crate) fn at_once(limit: u32) -> u32 {
    match limit {
        0 => AT_ONCE,
        limit => limit.min(AT_ONCE),
    }
}

/// Redacts what the worker redacts.
pub(crate) fn redactor(config: &Config) -> Redactor {
    let of_servers = agentmine_consumer::operator_secrets(config);
    Redactor::new(config.secrets().into_iter().chain(of_servers))
}
