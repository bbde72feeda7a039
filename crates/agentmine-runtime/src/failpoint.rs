//! Failpoints: the boundaries at which a process may die, for the chaos suite.
//!
//! Every commit, publish, acknowledgement, push, POST, checkpoint and removal runs inside [`around`], under a
//! name of [`BOUNDARIES`]. In a build with debug assertions the environment chooses what happens just before or
//! just after it: the process kills itself, stops itself, or the caller gets the error "outcome unknown". In
//! a release build [`around`] is its argument, and nothing reads the environment.
//!
//! `AGENTMINE_FAILPOINTS` is a list of `NAME.EDGE=ACTION`, separated by commas, for example
//! `store.claim.after=kill@2,gateway.push.before=stop`. The edge is `before` or `after`; the action is `kill`
//! (SIGKILL), `stop` (SIGSTOP; somebody else has to continue the process), `panic` (with `AGENTMINE_PANIC_MESSAGE`)
//! or `unknown` (an error; after the boundary, the work was done). `@N` acts at the N-th time (default 1), `*N` at N times in a row, and `!` only
//! once for all processes that share `AGENTMINE_FAILPOINTS_DIR`, where what happened is recorded.
//!
//! [`Guard`] names protections that a test may switch off, to see that the suite notices.

mod names;
#[cfg(debug_assertions)]
mod plan;

pub use names::{BOUNDARIES, Guard, OutcomeUnknown};

impl Guard {
    /// Whether a test has switched it off. Never in a release build.
    #[must_use]
    pub fn is_off(self) -> bool {
        #[cfg(debug_assertions)]
        return plan::guards_off().contains(&self);
        #[cfg(not(debug_assertions))]
        false
    }
}

/// Runs `work` between the two failpoints of `boundary`, a name of [`BOUNDARIES`].
///
/// # Errors
/// Returns the errors of `work`, and in a test [`OutcomeUnknown`] as an error of the same type.
#[cfg(not(debug_assertions))]
pub fn around<T, E: From<OutcomeUnknown>, F: Future<Output = Result<T, E>>>(
    _boundary: &'static str,
    work: F,
) -> F {
    work
}

/// Runs `work` between the two failpoints of `boundary`, a name of [`BOUNDARIES`].
///
/// # Errors
/// Returns the errors of `work`, and in a test [`OutcomeUnknown`] as an error of the same type.
///
/// # Panics
/// If the name is not in the table.
#[cfg(debug_assertions)]
pub fn around<T, E: From<OutcomeUnknown>, F: Future<Output = Result<T, E>>>(
    boundary: &'static str,
    work: F,
) -> std::pin::Pin<Box<impl Future<Output = Result<T, E>> + use<T, E, F>>> {
    let is_known = BOUNDARIES.contains(&boundary);
    assert!(is_known, "{boundary} is missing in failpoint::BOUNDARIES");
    // Boxed, since it would otherwise hold the work twice.
    Box::pin(async move {
        plan::reach(boundary, plan::Edge::Before)?;
        let done = work.await?;
        plan::reach(boundary, plan::Edge::After)?;
        Ok(done)
    })
}

/// The same for an operation of a group, if `GROUP.OPERATION` is a boundary; otherwise only `work`.
///
/// # Errors
/// As [`around`].
#[cfg(debug_assertions)]
pub async fn around_operation<T, E: From<OutcomeUnknown>>(
    group: &str,
    operation: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let is_it = |name: &&&str| name.strip_prefix(group) == Some(operation);
    match BOUNDARIES.iter().find(is_it) {
        Some(boundary) => around(boundary, work).await,
        None => work.await,
    }
}

/// The same for an operation of a group, if `GROUP.OPERATION` is a boundary; otherwise only `work`.
///
/// # Errors
/// As [`around`].
#[cfg(not(debug_assertions))]
pub fn around_operation<T, E: From<OutcomeUnknown>, F: Future<Output = Result<T, E>>>(
    _group: &str,
    _operation: &str,
    work: F,
) -> F {
    work
}
