-- What the model has written of its next reply, for people who follow a session: a row for each task that somebody follows or
-- followed while it ran. Workers write to it only until `followed_until`. Nothing depends on it, and it is of no use once the task has
-- a step after `after_seq`.
CREATE TABLE replies (
    task           uuid PRIMARY KEY REFERENCES tasks ON DELETE CASCADE,
    followed_until timestamptz NOT NULL,
    epoch          bigint NOT NULL DEFAULT 0,
    after_seq      bigint NOT NULL DEFAULT 0,
    text           text NOT NULL DEFAULT ''
);
