-- What a queued task of a tracker waits for before a worker may claim it: NULL nothing, '' the turn of its repository, else
-- what its own item waits for. It has no wake-up. Programs that do not know the columns claim such tasks too.
ALTER TABLE tasks ADD COLUMN waits_for text;
-- When what its item waits for is looked at again.
ALTER TABLE tasks ADD COLUMN look_at timestamptz;
-- When a task that had waited could be claimed.
ALTER TABLE tasks ADD COLUMN admitted_at timestamptz;
CREATE INDEX tasks_in_turn ON tasks (tracker, host, repo_id, item_kind, priority DESC, created_at, number)
    WHERE waits_for IS NOT NULL AND state = 'queued';
-- What a repository has of the fleet now, and the pull requests that it got.
CREATE INDEX tasks_admitted ON tasks (tracker, host, repo_id)
    WHERE state IN ('queued', 'leased') AND waits_for IS NULL;
CREATE INDEX IF NOT EXISTS tasks_with_pull_request ON tasks (tracker, host, repo_id, updated_at)
    WHERE state = 'done' AND item_kind = 'issue' AND pull_request_url IS NOT NULL;

-- Why the next task of a repository waits.
CREATE TABLE repository_waits (
    tracker text NOT NULL,
    host    text NOT NULL,
    repo_id text NOT NULL,
    reason  text NOT NULL,
    PRIMARY KEY (tracker, host, repo_id)
);

-- The view of 0017 without tasks that wait for their turn.
CREATE OR REPLACE VIEW demand AS
SELECT due, leased, owed, due + leased + CASE WHEN owed > 0 THEN 1 ELSE 0 END AS slots
FROM (
    SELECT
        (SELECT count(*) FROM tasks t
         WHERE t.state IN ('queued', 'leased') AND t.state = 'queued' AND t.waits_for IS NULL
           AND t.origin = 'tracker' AND t.assignee_type = 'ai'
           AND (SELECT count(*) FROM task_dependencies d JOIN tasks before ON before.id = d.depends_on
                WHERE d.task = t.id AND before.state <> 'done') = 0
           AND (SELECT count(*) FROM outbox o
                WHERE o.task = t.id AND o.sent_at IS NULL AND o.due_at > now()) = 0) AS due,
        (SELECT count(*) FROM tasks t WHERE t.state = 'leased') AS leased,
        (SELECT count(*) FROM outbox o WHERE o.sent_at IS NULL AND o.due_at <= now())
        + (SELECT count(*) FROM tasks t
           WHERE t.state IN ('done', 'failed', 'stopped', 'paused') AND NOT t.end_reported
             AND (SELECT count(*) FROM effects e
                  WHERE e.task = t.id AND e.kind = 'label' AND e.key = t.state
                    AND e.epoch = t.epoch AND e.done_at IS NOT NULL) = 0) AS owed
) AS counted;
