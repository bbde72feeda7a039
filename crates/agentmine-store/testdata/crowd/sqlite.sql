-- 10,000 tasks, as many sessions and 100,000 steps: what a fleet has after a year. `postgres.sql` makes the same rows.
-- One task has 5,010 steps, in two sessions. Most tasks are over; each tenth is one of a person.
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 10000)
INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key, trigger_event,
    dedup_key, title, url, priority, state, phase, epoch, attempt, owner, nonce, lease_until, lease_since, reason,
    last_seq, created_at, updated_at, end_reported, origin, assignee, assignee_type, write_scope, description)
SELECT printf('018f0000-0000-7000-8000-%012x', n), n,
    CASE WHEN n % 10 = 0 THEN 'local' ELSE 'github' END, 'github.com', CASE WHEN n % 10 = 0 THEN 'people' ELSE '42' END,
    'acme/shop', 'issue', n, 'item|' || n, 'event', 'item|' || n || '|event', 'Task ' || n, 'https://github.com/acme/shop/issues/' || n,
    n % 4, state, CASE state WHEN 'leased' THEN 'running' END, 1, 1,
    CASE state WHEN 'leased' THEN 'host/1/0' END,
    CASE state WHEN 'leased' THEN printf('018f0000-0000-7000-8001-%012x', n) END,
    CASE state WHEN 'leased' THEN unixepoch() * 1000 + 3600000 END, CASE state WHEN 'leased' THEN unixepoch() * 1000 END,
    CASE state WHEN 'failed' THEN 'it failed' END, 10, unixepoch() * 1000, unixepoch() * 1000, state IN ('done', 'failed', 'stopped'),
    CASE WHEN n % 10 = 0 THEN 'person' ELSE 'tracker' END, CASE WHEN n % 3 = 0 THEN 'assignee-' || n % 7 END, 'ai',
    CASE WHEN n % 5 = 0 THEN 'src/part-' || n || '/**' ELSE '' END, 'What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. What is to be done. '
FROM (SELECT n, CASE WHEN n > 9950 AND n % 10 <> 0 THEN 'leased' WHEN n > 9000 AND n % 10 <> 0 THEN 'queued' WHEN n % 50 = 0 THEN 'failed'
                     WHEN n % 51 = 0 THEN 'stopped' WHEN n % 53 = 0 THEN 'paused' ELSE 'done' END AS state
      FROM numbers) AS numbers;
INSERT INTO task_dependencies (task, depends_on)
SELECT t.id, b.id FROM tasks t JOIN tasks b ON b.number = t.number - 1 WHERE t.number % 20 = 0;
INSERT INTO sessions (task, epoch, worker, model, started_at, ended_at, ending)
SELECT id, 1, 'host/1/0', 'm', unixepoch() * 1000, CASE WHEN state = 'leased' THEN NULL ELSE unixepoch() * 1000 END,
    CASE WHEN state = 'leased' THEN NULL ELSE 'done' END
FROM tasks ORDER BY number;
INSERT INTO sessions (task, epoch, worker, model, started_at, ended_at, ending)
SELECT id, 2, 'host/1/0', 'm', unixepoch() * 1000, unixepoch() * 1000, 'done' FROM tasks WHERE number = 1;
WITH RECURSIVE numbers(s) AS (SELECT 1 UNION ALL SELECT s + 1 FROM numbers WHERE s < 10)
INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, recorded_at, token)
SELECT t.id, s, 1, 'note', '{"text":"' || replace(printf('%60s', ''), ' ', 'A step. ') || '"}', 7, unixepoch() * 1000, printf('018f0000-0000-7000-8002-%06x%06x', t.number, s)
FROM tasks t, numbers WHERE t.number <= 9500 OR t.number > 9950;
WITH RECURSIVE numbers(s) AS (SELECT 11 UNION ALL SELECT s + 1 FROM numbers WHERE s < 5010)
INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, recorded_at, token)
SELECT t.id, s, 2, 'note', '{"text":"' || replace(printf('%60s', ''), ' ', 'A step. ') || '"}', 7, unixepoch() * 1000, printf('018f0000-0000-7000-8002-%06x%06x', t.number, s)
FROM tasks t, numbers WHERE t.number = 1;
UPDATE tasks SET last_seq = 5010, epoch = 2, attempt = 2 WHERE number = 1;
INSERT INTO outbox (task, due_at, sent_at) SELECT id, unixepoch() * 1000, unixepoch() * 1000 FROM tasks;
INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
SELECT id, 'label', state, epoch, '{}', unixepoch() * 1000, unixepoch() * 1000 FROM tasks WHERE state IN ('done', 'failed', 'stopped', 'paused');
