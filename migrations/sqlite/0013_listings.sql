-- What people and editors list among all tasks that there ever were, newest first. The status is the public one, where
-- a paused task is in progress like a leased one.
CREATE INDEX tasks_by_status ON tasks (CASE state WHEN 'paused' THEN 'leased' ELSE state END, number);
CREATE INDEX tasks_by_assignee ON tasks (assignee, number) WHERE assignee IS NOT NULL;
CREATE INDEX tasks_by_assignee_and_status
    ON tasks (assignee, CASE state WHEN 'paused' THEN 'leased' ELSE state END, number) WHERE assignee IS NOT NULL;
-- The tasks at work whose files are named: what a conflict is looked for among.
CREATE INDEX tasks_with_scope ON tasks (repo_id) WHERE write_scope <> '' AND state IN ('leased', 'paused');
