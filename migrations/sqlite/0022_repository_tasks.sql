-- The fleet also works on tasks that people make for repositories of its trackers: the view `demand` of 0018 counts them.
DROP VIEW demand;
CREATE VIEW demand AS
SELECT due, leased, owed, due + leased + CASE WHEN owed > 0 THEN 1 ELSE 0 END AS slots
FROM (
    SELECT
        (SELECT count(*) FROM tasks t
         WHERE t.state IN ('queued', 'leased') AND t.state = 'queued' AND t.waits_for IS NULL
           AND (t.origin = 'tracker' OR t.host <> 'agentmine') AND t.assignee_type = 'ai'
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
