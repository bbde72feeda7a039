-- Requests for work that start none, and why: the newest of each item. A producer writes the row anew in each scan that
-- finds the request, so a row that was not seen for some minutes says nothing any more.
CREATE TABLE held_requests (
    item_key      text PRIMARY KEY,
    tracker       text NOT NULL,
    host          text NOT NULL,
    repo_id       text NOT NULL,
    repo_path     text NOT NULL,
    item_kind     text NOT NULL,
    item_number   bigint NOT NULL,
    trigger_event text NOT NULL,
    title         text NOT NULL,
    url           text NOT NULL,
    -- A stable name of the reason, and the reason as a sentence.
    code          text NOT NULL,
    message       text NOT NULL,
    held_since    timestamptz NOT NULL,
    seen_at       timestamptz NOT NULL
);
CREATE INDEX held_requests_by_time ON held_requests (seen_at);
