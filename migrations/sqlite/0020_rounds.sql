-- Pull requests that the fleet opened, and rounds on them: see ../postgres.
CREATE TABLE watched_pulls (
    task     TEXT NOT NULL PRIMARY KEY REFERENCES tasks (id),
    ended_at INTEGER,
    ended_by TEXT
) STRICT;
CREATE INDEX watched_pulls_open ON watched_pulls (task) WHERE ended_at IS NULL;
CREATE TABLE rounds (
    pull_key TEXT NOT NULL,
    number   INTEGER NOT NULL,
    origin   TEXT NOT NULL REFERENCES tasks (id),
    head     TEXT NOT NULL,
    cause    TEXT NOT NULL,
    result   TEXT,
    begun_at INTEGER NOT NULL,
    PRIMARY KEY (pull_key, number)
) STRICT;
