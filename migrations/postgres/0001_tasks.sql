-- The row is the task. Text that came from outside is stored with NUL replaced, which text cannot hold.

CREATE TABLE tasks (
    id               uuid PRIMARY KEY,
    number           bigint NOT NULL UNIQUE,
    tracker          text NOT NULL,
    host             text NOT NULL,
    repo_id          text NOT NULL,
    repo_path        text NOT NULL,
    item_kind        text NOT NULL,
    item_number      bigint NOT NULL,
    item_key         text NOT NULL,
    trigger_event    text NOT NULL,
    -- Over all rows, ended ones too: a stale scan never makes a second task.
    dedup_key        text NOT NULL UNIQUE,
    title            text NOT NULL,
    url              text NOT NULL,
    -- 0 low, 1 medium, 2 high, 3 critical: ordered.
    priority         smallint NOT NULL CHECK (priority BETWEEN 0 AND 3),
    state            text NOT NULL DEFAULT 'queued'
                     CHECK (state IN ('queued', 'leased', 'paused', 'done', 'failed', 'stopped')),
    phase            text,
    epoch            bigint NOT NULL DEFAULT 0,
    attempt          integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
    owner            text,
    nonce            uuid,
    lease_until      timestamptz,
    -- What people asked of a leased row: 'cancel' or 'pause'.
    wish             text CHECK (wish IN ('cancel', 'pause')),
    wish_reason      text,
    reason           text,
    pull_request_url text,
    -- The newest step's number. Counting here makes the journal gap-free under one row lock.
    last_seq         bigint NOT NULL DEFAULT 0,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT tasks_lease_is_whole CHECK (
        (state = 'leased') = (lease_until IS NOT NULL) AND (state = 'leased') = (nonce IS NOT NULL)
        AND (state = 'leased') = (phase IS NOT NULL) AND (wish IS NULL OR state = 'leased'))
);

CREATE UNIQUE INDEX tasks_one_open_per_item ON tasks (item_key)
    WHERE state IN ('queued', 'leased', 'paused');
CREATE INDEX tasks_by_item ON tasks (item_key, number DESC);
CREATE INDEX tasks_waiting ON tasks (priority DESC, created_at) WHERE state IN ('queued', 'leased');

CREATE TABLE outbox (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task    uuid NOT NULL REFERENCES tasks,
    due_at  timestamptz NOT NULL,
    sent_at timestamptz
);

CREATE INDEX outbox_unsent ON outbox (due_at) WHERE sent_at IS NULL;
CREATE INDEX outbox_by_task ON outbox (task);
CREATE INDEX outbox_sent ON outbox (sent_at) WHERE sent_at IS NOT NULL;

CREATE TABLE sessions (
    id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    task          uuid NOT NULL REFERENCES tasks,
    epoch         bigint NOT NULL,
    worker        text NOT NULL,
    model         text,
    started_at    timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    ending        text CHECK (ending IN ('done', 'failed', 'stopped', 'paused', 'released', 'expired')),
    reason        text,
    model_calls   integer NOT NULL DEFAULT 0,
    tool_calls    integer NOT NULL DEFAULT 0,
    input_tokens  bigint NOT NULL DEFAULT 0,
    cached_tokens bigint NOT NULL DEFAULT 0,
    output_tokens bigint NOT NULL DEFAULT 0,
    cost_micros   bigint NOT NULL DEFAULT 0,
    UNIQUE (task, epoch),
    CONSTRAINT sessions_end_is_whole CHECK ((ended_at IS NULL) = (ending IS NULL))
);

CREATE TABLE steps (
    task        uuid NOT NULL REFERENCES tasks,
    seq         bigint NOT NULL,
    epoch       bigint NOT NULL,
    kind        text NOT NULL,
    -- JSON as text: jsonb refuses \u0000, and a transcript is kept as it was.
    payload     text NOT NULL,
    duration_ms bigint NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    -- Names one call of append, so that a repeat after a lost commit finds its own step.
    token       uuid NOT NULL UNIQUE,
    PRIMARY KEY (task, seq)
);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the journal is append-only';
END
$$;

CREATE TRIGGER steps_append_only BEFORE UPDATE OR DELETE ON steps
    FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER steps_never_truncated BEFORE TRUNCATE ON steps
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

CREATE TABLE checkpoints (
    task        uuid NOT NULL REFERENCES tasks,
    seq         bigint NOT NULL,
    epoch       bigint NOT NULL,
    commit_hash text NOT NULL,
    bundle      bytea NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task, seq)
);

-- The bundle is zstd already.
ALTER TABLE checkpoints ALTER COLUMN bundle SET STORAGE EXTERNAL;

CREATE TABLE effects (
    task     uuid NOT NULL REFERENCES tasks,
    kind     text NOT NULL,
    key      text NOT NULL,
    epoch    bigint,
    intent   text NOT NULL,
    result   text,
    begun_at timestamptz NOT NULL DEFAULT now(),
    done_at  timestamptz,
    PRIMARY KEY (task, kind, key),
    CONSTRAINT effects_end_is_whole CHECK ((done_at IS NULL) = (result IS NULL))
);

CREATE INDEX effects_open ON effects (begun_at) WHERE done_at IS NULL;
