-- Tasks that people make, and sessions of clients outside of the fleet. A task of a person has an item that no tracker
-- serves, so no program of the previous version claims it, and its end counts as reported from the beginning.
ALTER TABLE tasks ADD COLUMN origin text NOT NULL DEFAULT 'tracker' CHECK (origin IN ('tracker', 'person'));
ALTER TABLE tasks ADD COLUMN task_type text NOT NULL DEFAULT 'task'
    CHECK (task_type IN ('task', 'feature', 'bug', 'refactor'));
ALTER TABLE tasks ADD COLUMN description text NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN assignee text;
ALTER TABLE tasks ADD COLUMN assignee_type text NOT NULL DEFAULT 'ai' CHECK (assignee_type IN ('ai', 'human'));
-- Patterns of the files that the task may change, one in each line. Empty: not known.
ALTER TABLE tasks ADD COLUMN write_scope text NOT NULL DEFAULT '';
-- Counts the changes that people made, and names the newest one, so that none is lost or made twice.
ALTER TABLE tasks ADD COLUMN version bigint NOT NULL DEFAULT 1;
ALTER TABLE tasks ADD COLUMN edit_token uuid;

CREATE TABLE task_dependencies (
    task       uuid NOT NULL REFERENCES tasks,
    depends_on uuid NOT NULL REFERENCES tasks,
    PRIMARY KEY (task, depends_on),
    CHECK (task <> depends_on)
);
CREATE INDEX task_dependencies_by_target ON task_dependencies (depends_on);

-- NULL: a worker of the fleet runs the session.
ALTER TABLE sessions ADD COLUMN client text;
ALTER TABLE sessions ADD COLUMN agent text;
ALTER TABLE sessions ADD COLUMN worktree text;
ALTER TABLE sessions ADD COLUMN exit_code bigint;
ALTER TABLE sessions ADD COLUMN signal text;
ALTER TABLE sessions ADD COLUMN dod_result text CHECK (dod_result IN ('pending', 'merged', 'timeout', 'error'));
-- JSON: what the client named as its results, and as its error.
ALTER TABLE sessions ADD COLUMN artifacts text;
ALTER TABLE sessions ADD COLUMN error text;
-- Name the calls that began and ended it, so that a repeat after a lost commit finds them.
ALTER TABLE sessions ADD COLUMN start_token uuid;
ALTER TABLE sessions ADD COLUMN end_token uuid;
