-- Renames in place, without expand and contract: no version has been released, so no process of an older
-- version can run beside this schema. SQLite cannot change a CHECK, so the table is made anew; foreign
-- keys are off while migrations run, and are checked before the commit.
CREATE TABLE tasks_new (
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
    -- What a person asked of a leased row: 'stop' or 'pause'.
    request          TEXT CHECK (request IN ('stop', 'pause')),
    request_reason   TEXT,
    reason           TEXT,
    pull_request_url TEXT,
    -- The newest step's number.
    last_seq         INTEGER NOT NULL DEFAULT 0,
    created_at       INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL,
    CONSTRAINT tasks_lease_is_whole CHECK (
        (state = 'leased') = (lease_until IS NOT NULL) AND (state = 'leased') = (nonce IS NOT NULL)
        AND (state = 'leased') = (phase IS NOT NULL) AND (request IS NULL OR state = 'leased'))
) STRICT;

INSERT INTO tasks_new
SELECT id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key, trigger_event,
    dedup_key, title, url, priority, state, phase, epoch, attempt, owner, nonce, lease_until,
    CASE wish WHEN 'cancel' THEN 'stop' ELSE wish END, wish_reason, reason, pull_request_url, last_seq,
    created_at, updated_at
FROM tasks;
DROP TABLE tasks;
ALTER TABLE tasks_new RENAME TO tasks;

CREATE UNIQUE INDEX tasks_one_open_per_item ON tasks (item_key)
    WHERE state IN ('queued', 'leased', 'paused');
CREATE INDEX tasks_by_item ON tasks (item_key, number DESC);
CREATE INDEX tasks_waiting ON tasks (priority DESC, created_at) WHERE state IN ('queued', 'leased');
