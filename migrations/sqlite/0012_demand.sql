-- What the fleet has to do now, in slots. An autoscaler reads only this: the broker's queue is empty while all slots
-- work, since a message is acknowledged when its task is claimed.
--   due     queued tasks that a worker may take: no delay, no other task and no person holds them back
--   leased  tasks that a worker runs, or whose lease has run out and that somebody has to take over
--   owed    wake-ups that are not published and ends that are not reported: one consumer is enough for all of them
CREATE VIEW demand AS
SELECT due, leased, owed, due + leased + CASE WHEN owed > 0 THEN 1 ELSE 0 END AS slots
FROM (
    SELECT
        (SELECT count(*) FROM tasks t
         WHERE t.state = 'queued' AND t.origin = 'tracker' AND t.assignee_type = 'ai'
           AND NOT EXISTS (SELECT 1 FROM task_dependencies d JOIN tasks before ON before.id = d.depends_on
                           WHERE d.task = t.id AND before.state <> 'done')
           AND NOT EXISTS (SELECT 1 FROM outbox o
                           WHERE o.task = t.id AND o.sent_at IS NULL AND o.due_at > CAST(round(unixepoch('subsec') * 1000) AS INTEGER))) AS due,
        (SELECT count(*) FROM tasks t WHERE t.state = 'leased') AS leased,
        (SELECT count(*) FROM outbox o WHERE o.sent_at IS NULL AND o.due_at <= CAST(round(unixepoch('subsec') * 1000) AS INTEGER))
        + (SELECT count(*) FROM tasks t
           WHERE t.state IN ('done', 'failed', 'stopped', 'paused') AND NOT t.end_reported
             AND NOT EXISTS (SELECT 1 FROM effects e
                             WHERE e.task = t.id AND e.kind = 'label' AND e.key = t.state
                               AND e.epoch = t.epoch AND e.done_at IS NOT NULL)) AS owed
) AS counted;
