-- What the sweep looks for among all tasks and effects that there ever were.
CREATE INDEX effects_unfinished ON effects (begun_at) WHERE done_at IS NULL;
CREATE INDEX tasks_leased ON tasks (lease_until) WHERE state = 'leased';
CREATE INDEX tasks_queued ON tasks (updated_at) WHERE state = 'queued';
-- What the second look at recent ends looks for.
CREATE INDEX tasks_at_rest ON tasks (updated_at) WHERE state IN ('done', 'failed', 'stopped', 'paused');
