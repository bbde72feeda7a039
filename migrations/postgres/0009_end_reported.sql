-- Whether the end of the task is known to be reported: then nobody looks for it among the effects any more. Never
-- true of a paused task, which may end again. Programs that do not write it leave a task to be looked for.
ALTER TABLE tasks ADD COLUMN end_reported boolean NOT NULL DEFAULT false;
CREATE INDEX IF NOT EXISTS tasks_unreported ON tasks (number)
    WHERE state IN ('done', 'failed', 'stopped', 'paused') AND NOT end_reported;
