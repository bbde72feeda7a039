-- Pull requests that the fleet opened, by the task that did, while reviews and failed checks begin rounds on them. A row
-- that is over says why.
CREATE TABLE watched_pulls (
    task     uuid PRIMARY KEY REFERENCES tasks (id),
    ended_at timestamptz,
    ended_by text
);
CREATE INDEX watched_pulls_open ON watched_pulls (task) WHERE ended_at IS NULL;
-- Rounds, by the pull request and their number. The task of one has the pull request as its item and the number in its
-- trigger. Cause and result are JSON.
CREATE TABLE rounds (
    pull_key text NOT NULL,
    number   bigint NOT NULL,
    origin   uuid NOT NULL REFERENCES tasks (id),
    head     text NOT NULL,
    cause    text NOT NULL,
    result   text,
    begun_at timestamptz NOT NULL,
    PRIMARY KEY (pull_key, number)
);
