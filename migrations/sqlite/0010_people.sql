-- Tasks that people make, and sessions of clients outside of the fleet. A task of a person has an item that no tracker
-- serves, so no program of the previous version claims it, and its end counts as reported from the beginning.
ALTER TABLE tasks ADD COLUMN origin TEXT NOT NULL DEFAULT 'tracker' CHECK (origin IN ('tracker', 'person'));
ALTER TABLE tasks ADD COLUMN task_type TEXT NOT NULL DEFAULT 'task'
    CHECK (task_type IN ('task', 'feature', 'bug', 'refactor'));
ALTER TABLE tasks ADD COLUMN description TEXT NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN assignee TEXT;
ALTER TABLE tasks ADD COLUMN assignee_type TEXT NOT NULL DEFAULT 'ai' CHECK (assignee_type IN ('ai', 'human'));
-- Patterns of the files that the task may change, one in each line. Empty: not known.
ALTER TABLE tasks ADD COLUMN write_scope TEXT NOT NULL DEFAULT '';
-- Counts the changes that people made, and names the newest one, so that none is lost or made twice.
ALTER TABLE tasks ADD COLUMN version INTEGER NOT NULL DEFAULT 1;
ALTER TABLE tasks ADD COLUMN edit_token TEXT;

CREATE TABLE task_dependencies (
    task       TEXT NOT NULL REFERENCES tasks,
    depends_on TEXT NOT NULL REFERENCES tasks,
    PRIMARY KEY (task, depends_on),
    CHECK (task <> depends_on)
) STRICT;
CREATE INDEX task_dependencies_by_target ON task_dependencies (depends_on);

-- NULL: a worker of the fleet runs the session.
ALTER TABLE sessions ADD COLUMN client TEXT;
ALTER TABLE sessions ADD COLUMN agent TEXT;
ALTER TABLE sessions ADD COLUMN worktree TEXT;
ALTER TABLE sessions ADD COLUMN exit_code INTEGER;
ALTER TABLE sessions ADD COLUMN signal TEXT;
ALTER TABLE sessions ADD COLUMN dod_result TEXT CHECK (dod_result IN ('pending', 'merged', 'timeout', 'error'));
-- JSON: what the client named as its results, and as its error.
ALTER TABLE sessions ADD COLUMN artifacts TEXT;
ALTER TABLE sessions ADD COLUMN error TEXT;
-- Name the calls that began and ended it, so that a repeat after a lost commit finds them.
ALTER TABLE sessions ADD COLUMN start_token TEXT;
ALTER TABLE sessions ADD COLUMN end_token TEXT;
