//! The boundaries, and the protections that a test may switch off.

/// The outcome of something that a failpoint interrupted.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the outcome of {0} is unknown (failpoint)")]
pub struct OutcomeUnknown(pub &'static str);

/// Every boundary. Each has two failpoints: `NAME.before` and `NAME.after`.
pub const BOUNDARIES: &[&str] = &[
    // DESIGN.md §5: the row, the outbox, the queue, the lease.
    "store.enqueue",
    "store.answer_request",
    "store.hold_request",
    "store.relay_outbox",
    "store.begin_round",
    "store.watch_pull",
    "store.unwatch_pull",
    "store.round_result",
    "store.claim",
    "store.heartbeat",
    "store.name_branch",
    "store.set_phase",
    "store.end_lease",
    "store.sweep",
    "store.fail_queued",
    "store.request_stop",
    "store.request_pause",
    "store.obey",
    "store.enqueue_waiting",
    "store.admit",
    "store.admit_at_once",
    "store.hold_repository",
    "store.hold_task",
    "store.prioritize",
    "store.skip_delay",
    "store.claim_dashboard",
    "store.begin_dashboard_text",
    "store.found_dashboard",
    "store.dashboard_shows",
    "store.note_on_dashboard",
    "store.release_dashboard",
    "store.prune",
    "store.fold_totals",
    "store.resume",
    // Before the commit of a transaction its locks are held.
    "store.commit",
    "queue.publish",
    "queue.retry_later",
    "queue.dead_letter",
    "queue.get",
    "queue.ack",
    // §6: effects, and the writes themselves.
    "store.effect_begin",
    "store.effect_done",
    "store.claim_report",
    "store.found_result",
    "store.worker_died",
    "tracker.label_add",
    "tracker.label_remove",
    "tracker.comment_create",
    "tracker.comment_edit",
    "tracker.comment_delete",
    "tracker.thread_reply",
    "tracker.thread_resolve",
    "tracker.reaction_create",
    "tracker.pull_request_create",
    "tracker.pull_request_update",
    "tracker.pull_request_ready",
    "tracker.branch_remove",
    "tracker.issue_create",
    "tracker.issue_edit",
    "gateway.fence",
    "gateway.push",
    // §7: the journal and the files.
    "store.append_step",
    "store.record_usage",
    "store.save_checkpoint",
    "store.add_memory",
    "checkpoint.snapshot",
    "checkpoint.restore",
    // §8: sandboxes.
    "sandbox.create",
    "sandbox.start",
    "sandbox.assign",
    "sandbox.remove",
    "sandbox.remove_stale",
];

/// A protection that [`Guard::is_off`] may report as switched off, by `AGENTMINE_GUARDS_OFF`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Writes under a lease compare its epoch with the row's.
    Fence,
    /// An effect whose intent is recorded is looked for on the tracker before it is acted.
    LookUp,
    /// A publish waits for the broker's confirm, and looks for a return.
    Confirm,
    /// A wake-up is marked as sent only after it was published.
    Outbox,
    /// After an absence of the database, expired leases are left to their holders for a while.
    Grace,
    /// Rows without a recent wake-up are polled, and woken again. It covers for the outbox and the confirm.
    SecondNet,
}

impl Guard {
    /// All guards.
    pub const ALL: [Self; 6] = [
        Self::Fence,
        Self::LookUp,
        Self::Confirm,
        Self::Outbox,
        Self::Grace,
        Self::SecondNet,
    ];

    /// The name in `AGENTMINE_GUARDS_OFF`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fence => "fence",
            Self::LookUp => "look-up",
            Self::Confirm => "confirm",
            Self::Outbox => "outbox",
            Self::Grace => "grace",
            Self::SecondNet => "second-net",
        }
    }
}
