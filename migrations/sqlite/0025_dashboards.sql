-- The dashboard issues, one of each repository: see ../postgres.
CREATE TABLE dashboards (
    tracker    TEXT NOT NULL,
    host       TEXT NOT NULL,
    repo_id    TEXT NOT NULL,
    repo_path  TEXT NOT NULL,
    number     INTEGER,
    revision   INTEGER NOT NULL DEFAULT 0,
    written_at INTEGER,
    shown_at   INTEGER,
    body       TEXT NOT NULL DEFAULT '',
    notice     TEXT NOT NULL DEFAULT '',
    holder     TEXT,
    held_until INTEGER NOT NULL,
    PRIMARY KEY (tracker, host, repo_id)
) STRICT;
