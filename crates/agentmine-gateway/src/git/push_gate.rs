//! Pushes to the one branch.
//!
//! A push is read whole, then checked, then sent upstream from the file it was read into; the order of
//! the checks is in [`PushGate::decide`]. A push that has been read is finished even if the sandbox goes
//! away meanwhile, so its outcome is always recorded. There is one push at a time: what the branch held
//! and what it holds afterwards are known to the next one. The next one is not read before: a sandbox
//! fills one file at most. A sealed gate refuses every push; sealing waits for a push that is being
//! checked or sent, but never for one that is being read.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agentmine_runtime::config::PushPolicy;
use agentmine_runtime::failpoint::{OutcomeUnknown, around};
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use tracing::Instrument;

use super::content::Held;
use super::fresh::unknown;
use super::quarantine::{self, Bounds, Checked, Moves};
use super::respond::{answer, encoding, has_type, note, note_shortage, unspooled};
use super::spool::Spool;
use crate::GatewayError;
use crate::config::{BranchBefore, PushFence, Rewrite};
use crate::events::Ledger;
use crate::http::{Body, full, text};
use crate::upstream::{Encoding, Remote, Service, UpstreamError};
use crate::wire::advertisement::Advertisement;
use crate::wire::object_id::is_zero;
use crate::wire::push_report::{self, Verdict};
use crate::wire::push_request::{PushHead, PushRequest, RefUpdate};
use crate::wire::ref_name::branch_ref;

/// Size limit of the head of a push, in bytes.
const MAX_PUSH_HEAD: usize = 8 * 1024 * 1024;
/// What to do where the repository's host does not let the branch be rewritten.
const NO_REWRITE: &str = "the repository's host refused to replace the history of this branch: go back to the branch as it \
                          is there, merge instead, and push that";
/// Why a sealed gate refuses a push.
/// Why a push is refused that may lack what the task started from.
const START_GONE: &str = "the commit that the task started from is on no branch or tag of the repository any more: somebody has \
    replaced the history. If the clone is shallow, run `git fetch --unshallow`; then push again";
const SEALED: &str = "pushes are refused while the result is being measured";

/// Checks pushes and sends them upstream.
pub(super) struct PushGate {
    remote: Arc<Remote>,
    branch: String,
    refname: String,
    max_push_bytes: u64,
    policy: PushPolicy,
    fence: Arc<dyn PushFence>,
    ledger: Arc<Ledger>,
    /// Held by the push that is being checked and sent.
    pinned: Arc<Mutex<Pinned>>,
    /// Set under the lock of `pinned`.
    sealed: AtomicBool,
    /// Whether the branch existed before this session's first push.
    /// Held from before a push is read until it is done.
    spools: Arc<Semaphore>,
}

/// What this gateway knows of the branch from its own pushes.
#[derive(Debug, Default)]
struct Pinned {
    /// The branch before the next push from here: after the first one, at what upstream accepted last.
    before: BranchBefore,
    /// What was sent and not confirmed. It may arrive late.
    unconfirmed: BTreeSet<String>,
    /// A push whose response was lost: upstream may hold this commit.
    in_doubt: Option<Attempt>,
    /// What may be replaced. Its head follows the pushes from here.
    rewrite: Option<Rewrite>,
    /// What the push that creates the branch must contain.
    start: Option<String>,
    /// Whether upstream has it no longer, as after a push that replaced the default branch.
    start_is_gone: bool,
}

impl Pinned {
    /// Whether a push on top of `old`, the zero id where the branch was not there, is on top of one of somebody else.
    fn is_on_top_of_others(&self, old: &str) -> bool {
        let moved = match &self.before {
            BranchBefore::Unknown | BranchBefore::Present => false,
            BranchBefore::Absent => !is_zero(old),
            BranchBefore::At(commit) => commit != old,
        };
        moved && !self.unconfirmed.contains(old)
    }

    /// Whether the push was refused since it omits what the task started from: upstream was said to have it.
    fn lacks_start(&self, held: &Held) -> bool {
        let start = self.start.as_deref().filter(|_| !self.start_is_gone);
        start.is_some_and(|start| held.reason == unknown(start))
    }
}

#[derive(Debug, Clone)]
struct Attempt {
    old: String,
    new: String,
    bytes: u64,
    /// Authors and committers of its new commits.
    identities: BTreeSet<String>,
}

/// Why a push did not happen.
struct Refusal {
    reason: String,
    /// More for the user of git, one line each.
    details: Vec<String>,
}

impl From<OutcomeUnknown> for Refusal {
    fn from(error: OutcomeUnknown) -> Self {
        error.to_string().into()
    }
}

impl From<Held> for Refusal {
    fn from(Held { reason, details }: Held) -> Self {
        Self { reason, details }
    }
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self {
            reason,
            details: Vec::new(),
        }
    }
}

impl From<&str> for Refusal {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

impl PushGate {
    pub(super) fn new(
        remote: Arc<Remote>,
        branch: String,
        max_push_bytes: u64,
        policy: PushPolicy,
        fence: Arc<dyn PushFence>,
        ledger: Arc<Ledger>,
    ) -> Result<Self, GatewayError> {
        Ok(Self {
            refname: branch_ref(&branch)?,
            remote,
            branch,
            max_push_bytes,
            policy,
            fence,
            ledger,
            pinned: Arc::default(),
            sealed: AtomicBool::new(false),
            spools: Arc::new(Semaphore::new(1)),
        })
    }

    pub(super) async fn seal(&self) {
        let mut pinned = self.pinned.lock().await;
        if pinned.in_doubt.is_some()
            && let Ok(refs) = self.remote.advertise_push().await
        {
            self.settle(&refs, &mut pinned);
        }
        self.sealed.store(true, Ordering::SeqCst);
    }

    /// Records refused credentials. Whatever else is wrong now may be right when something is pushed.
    pub(super) async fn try_credentials(&self) {
        if let Err(error @ (UpstreamError::Auth(_) | UpstreamError::Refused(_))) =
            self.remote.offers_push().await
        {
            note(&self.ledger, &error);
        }
    }

    pub(super) async fn branch_was(&self, before: BranchBefore) {
        self.pinned.lock().await.before = before;
    }

    pub(super) async fn require_start(&self, commit: &str) {
        self.pinned.lock().await.start = Some(commit.to_owned());
    }

    /// The commit that the work began from, as far as upstream has it: a shallow clone would send all of its files if none of
    /// upstream's branches is at it any more.
    pub(super) async fn start(&self) -> Option<String> {
        let pinned = self.pinned.lock().await;
        pinned.start.clone().filter(|_| !pinned.start_is_gone)
    }

    pub(super) async fn allow_rewrite(&self, rewrite: Rewrite) {
        self.pinned.lock().await.rewrite = Some(rewrite);
    }

    pub(super) async fn rewritable(&self) -> Option<String> {
        let pinned = self.pinned.lock().await;
        pinned.rewrite.as_ref().map(|it| it.head.clone())
    }

    pub(super) fn unseal(&self) {
        self.sealed.store(false, Ordering::SeqCst);
    }

    /// Reports that a client asked for the refs that it may push to, unless the gate is sealed.
    pub(super) fn begins(&self) {
        if self.check_seal().is_ok() {
            self.ledger.push_begins();
        }
    }

    fn check_seal(&self) -> Result<(), Refusal> {
        if self.sealed.load(Ordering::SeqCst) {
            return Err(SEALED.into());
        }
        Ok(())
    }

    /// Reads, checks and sends one push.
    pub(super) async fn receive(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        if !matches!(encoding(request.headers()), Ok(Encoding::Identity)) {
            return self.unread("the body of a push may not be compressed");
        }
        if !has_type(request.headers(), &Service::ReceivePack.request_type()) {
            return self.unread("the content type is not that of a push");
        }
        let Ok(permit) = self.spools.clone().acquire_owned().await else {
            return text(StatusCode::SERVICE_UNAVAILABLE, "the gateway is closed");
        };
        let spool = match Spool::read(request.into_body(), self.max_push_bytes).await {
            Ok(spool) => spool,
            Err(error) => {
                tracing::debug!(%error, "a push was not read to its end");
                return unspooled(&self.ledger, &error);
            }
        };
        let ledger = self.ledger.clone();
        // A separate task: the sandbox closing its stream must not leave the outcome unrecorded.
        let push = async move {
            let _permit = permit;
            let pinned = self.pinned.clone().lock_owned().await;
            self.push(&spool, pinned).await
        };
        match tokio::spawn(push.in_current_span()).await {
            Ok(response) => response,
            Err(error) => {
                tracing::error!(%error, "a push panicked");
                ledger.push_refused("the check of the push failed");
                text(StatusCode::INTERNAL_SERVER_ERROR, "the push failed")
            }
        }
    }

    /// A request that is not read.
    fn unread(&self, reason: &str) -> Response<Body> {
        self.ledger.push_refused(reason);
        text(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason)
    }

    async fn push(&self, spool: &Spool, mut pinned: OwnedMutexGuard<Pinned>) -> Response<Body> {
        let result_type = Service::ReceivePack.result_type();
        let start = spool.start(MAX_PUSH_HEAD).unwrap_or_default();
        let head = match PushRequest::parse(&start) {
            Ok(PushRequest::Probe) => return answer(&result_type, full(Bytes::new())),
            Ok(PushRequest::Push(head)) => head,
            Err(error) => {
                self.ledger.push_refused(&error.to_string());
                return text(StatusCode::BAD_REQUEST, "the push is malformed");
            }
        };
        drop(start);
        match self.decide(spool, &head, &mut pinned).await {
            Ok(messages) => {
                let report = push_report::success(&head, &self.refname, &messages);
                answer(&result_type, full(report))
            }
            Err(Refusal { reason, details }) => {
                self.ledger.push_refused(&reason);
                match push_report::refusal(&head, &reason, &details) {
                    Some(report) => answer(&result_type, full(report)),
                    None => text(StatusCode::FORBIDDEN, &reason),
                }
            }
        }
    }

    /// Checks a push and, if every check passes, sends it upstream. Returns upstream's messages.
    async fn decide(
        &self,
        spool: &Spool,
        head: &PushHead,
        pinned: &mut Pinned,
    ) -> Result<Vec<u8>, Refusal> {
        self.check_seal()?;
        let command = head.only_command(&self.refname)?;
        if spool.over {
            let limit = self.max_push_bytes;
            return Err(format!("the push is larger than the limit of {limit} bytes").into());
        }
        let refs = self.check_old(command, head, pinned).await?;
        let remote = self.remote.clone();
        // `check_old` saw that upstream is at the old commit, and upstream compares it again.
        let rewrite = pinned.rewrite.as_ref();
        let bounds = Bounds {
            onto: rewrite
                .filter(|it| it.head == command.old)
                .map(|it| it.onto.as_str()),
            start: pinned.start.as_deref(),
        };
        let checked =
            quarantine::check(remote, spool, head, command, bounds, &refs, &self.policy).await;
        let checked = match checked {
            Err(held) if pinned.lacks_start(&held) => {
                pinned.start_is_gone = true;
                return Err(START_GONE.into());
            }
            checked => checked?,
        };
        let fenced = async {
            let checked = self.fence.check().await;
            checked.map_err(|reason| no_longer(&reason))
        };
        around("gateway.fence", fenced).await?;
        let upstream_head = head.for_upstream(command, &refs);
        let (file, length) =
            spool
                .with_head(&upstream_head, head.pack_offset)
                .map_err(|error| {
                    tracing::warn!(%error, "a push cannot be read back");
                    note_shortage(&self.ledger, &error);
                    Refusal::from("the push could not be read back")
                })?;
        let attempt = Attempt {
            old: command.old.clone(),
            new: command.new.clone(),
            bytes: spool.length,
            identities: checked.identities.clone(),
        };
        self.forward(attempt, file, length, pinned, checked).await
    }

    /// The push must start from what upstream has now. What a person pushed in between is then part
    /// of it, or the push is refused further on as a rewind (a rewrite is allowed of our own commits alone); a branch that
    /// a person has deleted is not
    /// created again.
    async fn check_old(
        &self,
        command: &RefUpdate,
        head: &PushHead,
        pinned: &mut Pinned,
    ) -> Result<Advertisement, Refusal> {
        let refs = self
            .remote
            .advertise_push()
            .await
            .map_err(|e| self.refused(&e))?;
        if refs.object_format() != head.object_format() {
            return Err("the push and the repository use different object formats".into());
        }
        self.settle(&refs, pinned);
        pinned.in_doubt = None;
        let now = refs.id(&self.refname);
        let was_there = matches!(pinned.before, BranchBefore::Present | BranchBefore::At(_));
        if was_there && now.is_none() {
            return Err("someone else deleted the branch".into());
        }
        let expected = (!is_zero(&command.old)).then_some(command.old.as_str());
        if now != expected {
            return Err("the branch has moved since it was fetched; fetch it again first".into());
        }
        if now.is_none()
            && let Some(other) = refs.in_the_way_of(&self.refname)
        {
            // Upstream only says that it could not update the ref.
            return Err(branch_in_the_way(&self.branch, other).into());
        }
        Ok(refs)
    }

    /// Sends a push upstream. Where the response does not show whether the branch was moved, its ref does.
    async fn forward(
        &self,
        attempt: Attempt,
        file: File,
        length: u64,
        pinned: &mut Pinned,
        checked: Checked,
    ) -> Result<Vec<u8>, Refusal> {
        self.check_seal()?;
        let sent = async {
            // Last, since upstream knows of no lease.
            if let Err(reason) = self.fence.check_clock() {
                return Ok(Err(no_longer(&reason)));
            }
            let response = self.remote.receive_pack(file, length).await?;
            Ok(Ok(response))
        };
        let why = match around("gateway.push", sent).await {
            Ok(Err(late)) => return Err(late),
            Ok(Ok(response)) => {
                let report = push_report::read(&response, &self.refname);
                match report.verdict {
                    Verdict::Accepted => {
                        self.accepted(&attempt, pinned);
                        return Ok(report.messages);
                    }
                    Verdict::Rejected(ref reason) => {
                        return Err(rejected(reason, report.lines(), checked.moves, pinned));
                    }
                    Verdict::Unclear(why) => format!("upstream did not confirm the push: {why}"),
                }
            }
            Err(error @ UpstreamError::Network(_)) => self.refused(&error).reason,
            Err(error) => return Err(self.refused(&error)),
        };
        pinned.unconfirmed.insert(attempt.new.clone());
        pinned.in_doubt = Some(attempt);
        match self.remote.advertise_push().await {
            Ok(refs) => {
                self.settle(&refs, pinned);
                match pinned.in_doubt {
                    None => Ok(Vec::new()),
                    Some(_) => Err(format!("{why}; the branch has not moved").into()),
                }
            }
            Err(_) => Err(format!("{why}; it is not known whether the branch has moved").into()),
        }
    }

    /// Looks whether a push in doubt has arrived after all. One that has not may still do so.
    fn settle(&self, refs: &Advertisement, pinned: &mut Pinned) {
        let arrived = |doubt: &Attempt| refs.id(&self.refname) == Some(doubt.new.as_str());
        if let Some(doubt) = pinned.in_doubt.take_if(|doubt| arrived(doubt)) {
            self.accepted(&doubt, pinned);
        }
    }

    fn accepted(&self, push: &Attempt, pinned: &mut Pinned) {
        if pinned.is_on_top_of_others(&push.old) {
            self.ledger.others_have_pushed();
        }
        pinned.before = BranchBefore::At(push.new.clone());
        // What others pushed in between is part of this push, so nothing replaces it.
        pinned.rewrite = pinned.rewrite.take().filter(|it| it.head == push.old);
        if let Some(rewrite) = &mut pinned.rewrite {
            rewrite.head.clone_from(&push.new);
        }
        self.ledger.record_identities(&push.identities);
        self.ledger
            .pushed(&self.branch, &push.old, &push.new, push.bytes);
        self.fence.accepted();
    }

    fn refused(&self, error: &UpstreamError) -> Refusal {
        note(&self.ledger, error);
        Refusal::from(error.to_string())
    }
}

/// Upstream rejected a push, in these words. One that replaces the history is not tried again.
fn rejected(reason: &str, details: Vec<String>, moves: Moves, pinned: &mut Pinned) -> Refusal {
    let reason = match push_report::violations(&details) {
        Some(violations) => format!("{reason} ({violations})"),
        None => reason.to_owned(),
    };
    let reason = match moves {
        Moves::Adds => reason,
        Moves::Replaces => {
            pinned.rewrite = None;
            format!("{NO_REWRITE} ({reason})")
        }
    };
    Refusal { reason, details }
}

fn no_longer(reason: &str) -> Refusal {
    Refusal::from(format!("this session may no longer push: {reason}"))
}

/// Why the branch `branch` cannot be pushed, and what to do: git has no branch below another one.
#[must_use]
pub fn branch_in_the_way(branch: &str, other: &str) -> String {
    format!(
        "the branch `{other}` is in the way of `{branch}`, since git has no branch below another one. hint: rename or delete `{other}`"
    )
}
