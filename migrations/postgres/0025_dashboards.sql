-- The dashboard issues, one of each repository. The number is NULL until the issue is known; one may exist all the same.
-- `revision` counts the texts that were about to be written. Only the holder writes to the tracker.
CREATE TABLE dashboards (
    tracker    text NOT NULL,
    host       text NOT NULL,
    repo_id    text NOT NULL,
    repo_path  text NOT NULL,
    number     bigint,
    revision   bigint NOT NULL DEFAULT 0,
    -- When the latest text was about to be written, by the database's clock.
    written_at timestamptz,
    -- When it was written, by the tracker's clock, in milliseconds since 1970.
    shown_at   bigint,
    body       text NOT NULL DEFAULT '',
    -- What became of the latest tick, Markdown.
    notice     text NOT NULL DEFAULT '',
    holder     uuid,
    held_until timestamptz NOT NULL,
    PRIMARY KEY (tracker, host, repo_id)
);
