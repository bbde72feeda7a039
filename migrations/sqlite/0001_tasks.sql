-- The same tables as in ../postgres. UUIDs are text; times are whole milliseconds since 1970, UTC, by
-- this database's own clock.

CREATE TABLE tasks (
    id               TEXT PRIMARY KEY NOT NULL,
    number           INTEGER NOT NULL UNIQUE,
    tracker          TEXT NOT NULL,
    host             TEXT NOT NULL,
    repo_id          TEXT NOT NULL,
    repo_path        TEXT NOT NULL,
    item_kind        TEXT NOT NULL,
    item_number      INTEGER NOT NULL,
    item_key         TEXT NOT NULL,
    trigger_event    TEXT NOT NULL,
    -- Over all rows, ended ones too: a stale scan never makes a second task.
    dedup_key        TEXT NOT NULL UNIQUE,
    title            TEXT NOT NULL,
    url              TEXT NOT NULL,
    -- 0 low, 1 medium, 2 high, 3 critical: ordered.
    priority         INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    state            TEXT NOT NULL DEFAULT 'queued'
                     CHECK (state IN ('queued', 'leased', 'paused', 'done', 'failed', 'stopped')),
    phase            TEXT,
    epoch            INTEGER NOT NULL DEFAULT 0,
    attempt          INTEGER NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    owner            TEXT,
    nonce            TEXT,
    lease_until      INTEGER,
    -- What people asked of a leased row: 'cancel' or 'pause'.
    wish             TEXT CHECK (wish IN ('cancel', 'pause')),
    wish_reason      TEXT,
    reason           TEXT,
    pull_request_url TEXT,
    -- The newest step's number.
    last_seq         INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    CONSTRAINT tasks_lease_is_whole CHECK (
        (state = 'leased') = (lease_until IS NOT NULL) AND (state = 'leased') = (nonce IS NOT NULL)
        AND (state = 'leased') = (phase IS NOT NULL) AND (wish IS NULL OR state = 'leased'))
) STRICT;

CREATE UNIQUE INDEX tasks_one_open_per_item ON tasks (item_key)
    WHERE state IN ('queued', 'leased', 'paused');
CREATE INDEX tasks_by_item ON tasks (item_key, number DESC);
CREATE INDEX tasks_waiting ON tasks (priority DESC, created_at) WHERE state IN ('queued', 'leased');

CREATE TABLE outbox (
    id          INTEGER PRIMARY KEY,
    task        TEXT NOT NULL REFERENCES tasks,
    due_at      INTEGER NOT NULL,
    sent_at     INTEGER,
    -- A relay has it until then: SQLite has no row locks to skip.
    taken_until INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX outbox_unsent ON outbox (due_at) WHERE sent_at IS NULL;
CREATE INDEX outbox_by_task ON outbox (task);
CREATE INDEX outbox_sent ON outbox (sent_at) WHERE sent_at IS NOT NULL;

CREATE TABLE sessions (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    task          TEXT NOT NULL REFERENCES tasks,
    epoch         INTEGER NOT NULL,
    worker        TEXT NOT NULL,
    model         TEXT,
    started_at    INTEGER NOT NULL,
    ended_at      INTEGER,
    ending        TEXT CHECK (ending IN ('done', 'failed', 'stopped', 'paused', 'released', 'expired')),
    reason        TEXT,
    model_calls   INTEGER NOT NULL DEFAULT 0,
    tool_calls    INTEGER NOT NULL DEFAULT 0,
    input_tokens  INTEGER NOT NULL DEFAULT 0,
    cached_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cost_micros   INTEGER NOT NULL DEFAULT 0,
    UNIQUE (task, epoch),
    CONSTRAINT sessions_end_is_whole CHECK ((ended_at IS NULL) = (ending IS NULL))
) STRICT;

CREATE TABLE steps (
    task        TEXT NOT NULL REFERENCES tasks,
    seq         INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    kind        TEXT NOT NULL,
    payload     TEXT NOT NULL,
    duration_ms INTEGER NOT NULL,
    recorded_at INTEGER NOT NULL,
    -- Names one call of append, so that a repeat after a lost commit finds its own step.
    token       TEXT NOT NULL UNIQUE,
    PRIMARY KEY (task, seq)
) STRICT;

CREATE TRIGGER steps_never_updated BEFORE UPDATE ON steps
BEGIN
    SELECT RAISE(ABORT, 'the journal is append-only');
END;
CREATE TRIGGER steps_never_deleted BEFORE DELETE ON steps
BEGIN
    SELECT RAISE(ABORT, 'the journal is append-only');
END;

CREATE TABLE checkpoints (
    task        TEXT NOT NULL REFERENCES tasks,
    seq         INTEGER NOT NULL,
    epoch       INTEGER NOT NULL,
    commit_hash TEXT NOT NULL,
    bundle      BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    PRIMARY KEY (task, seq)
) STRICT;

CREATE TABLE effects (
    task     TEXT NOT NULL REFERENCES tasks,
    kind     TEXT NOT NULL,
    key      TEXT NOT NULL,
    epoch    INTEGER,
    intent   TEXT NOT NULL,
    result   TEXT,
    begun_at INTEGER NOT NULL,
    done_at  INTEGER,
    PRIMARY KEY (task, kind, key),
    CONSTRAINT effects_end_is_whole CHECK ((done_at IS NULL) = (result IS NULL))
) STRICT;

CREATE INDEX effects_open ON effects (begun_at) WHERE done_at IS NULL;
