-- Requests for work that start none, and why: see ../postgres.
CREATE TABLE held_requests (
    item_key      TEXT NOT NULL PRIMARY KEY,
    tracker       TEXT NOT NULL,
    host          TEXT NOT NULL,
    repo_id       TEXT NOT NULL,
    repo_path     TEXT NOT NULL,
    item_kind     TEXT NOT NULL,
    item_number   INTEGER NOT NULL,
    trigger_event TEXT NOT NULL,
    title         TEXT NOT NULL,
    url           TEXT NOT NULL,
    code          TEXT NOT NULL,
    message       TEXT NOT NULL,
    held_since    INTEGER NOT NULL,
    seen_at       INTEGER NOT NULL
) STRICT;
CREATE INDEX held_requests_by_time ON held_requests (seen_at);
