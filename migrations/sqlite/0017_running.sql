-- The sessions that run, among all that there ever were.
CREATE INDEX IF NOT EXISTS sessions_running ON sessions (id) WHERE ended_at IS NULL;
-- The view `demand` of 0012 with the same numbers. A subquery that is counted is answered by an index for each row; one
-- that is only asked for existence Postgres turns into a join, for which it reads all tasks and effects there ever were.
DROP VIEW demand;
CREATE VIEW demand AS
SELECT due, leased, owed, due + leased + CASE WHEN owed > 0 THEN 1 ELSE 0 END AS slots
FROM (
    SELECT
        (SELECT count(*) FROM tasks t
         WHERE t.state = 'queued' AND t.origin = 'tracker' AND t.assignee_type = 'ai'
           AND (SELECT count(*) FROM task_dependencies d JOIN tasks before ON before.id = d.depends_on
                WHERE d.task = t.id AND before.state <> 'done') = 0
           AND (SELECT count(*) FROM outbox o
                WHERE o.task = t.id AND o.sent_at IS NULL AND o.due_at > CAST(round(unixepoch('subsec') * 1000) AS INTEGER)) = 0) AS due,
        (SELECT count(*) FROM tasks t WHERE t.state = 'leased') AS leased,
        (SELECT count(*) FROM outbox o WHERE o.sent_at IS NULL AND o.due_at <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
        + (SELECT count(*) FROM tasks t
           WHERE t.state IN ('done', 'failed', 'stopped', 'paused') AND NOT t.end_reported
             AND (SELECT count(*) FROM effects e
                  WHERE e.task = t.id AND e.kind = 'label' AND e.key = t.state
                    AND e.epoch = t.epoch AND e.done_at IS NOT NULL) = 0) AS owed
) AS counted;
