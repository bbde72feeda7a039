-- The newest request for work that the row has taken account of after the one that made it: a paused task
-- that a person labelled again, or a queued one. NULL: none.
ALTER TABLE tasks ADD COLUMN answered_trigger TEXT;
