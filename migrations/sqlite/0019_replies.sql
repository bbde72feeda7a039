-- What the model has written of its next reply, for people who follow a session: a row for each task that somebody follows or
-- followed while it ran. Workers write to it only until `followed_until`. Nothing depends on it, and it is of no use once the task has
-- a step after `after_seq`.
CREATE TABLE replies (
    task           TEXT PRIMARY KEY REFERENCES tasks ON DELETE CASCADE,
    followed_until INTEGER NOT NULL,
    epoch          INTEGER NOT NULL DEFAULT 0,
    after_seq      INTEGER NOT NULL DEFAULT 0,
    text           TEXT NOT NULL DEFAULT ''
);
