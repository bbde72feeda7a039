-- 10,000 tasks, as many sessions and 100,000 steps: what a fleet has after a year. `sqlite.sql` makes the same rows.
-- One task has 5,010 steps, in two sessions. Most tasks are over; each tenth is one of a person.
INSERT INTO tasks (id, number, tracker, host, repo_id, repo_path, item_kind, item_number, item_key, trigger_event,
    dedup_key, title, url, priority, state, phase, epoch, attempt, owner, nonce, lease_until, lease_since, reason,
    last_seq, created_at, updated_at, end_reported, origin, assignee, assignee_type, write_scope, description)
SELECT ('018f0000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid, n,
    CASE WHEN n % 10 = 0 THEN 'local' ELSE 'github' END, 'github.com', CASE WHEN n % 10 = 0 THEN 'people' ELSE '42' END,
    'acme/shop', 'issue', n, 'item|' || n, 'event', 'item|' || n || '|event', 'Task ' || n, 'https://github.com/acme/shop/issues/' || n,
    n % 4, state, CASE state WHEN 'leased' THEN 'running' END, 1, 1,
    CASE state WHEN 'leased' THEN 'host/1/0' END,
    CASE state WHEN 'leased' THEN ('018f0000-0000-7000-8001-' || lpad(to_hex(n), 12, '0'))::uuid END,
    CASE state WHEN 'leased' THEN now() + interval '1 hour' END, CASE state WHEN 'leased' THEN now() END,
    CASE state WHEN 'failed' THEN 'it failed' END, 10, now(), now(), state IN ('done', 'failed', 'stopped'),
    CASE WHEN n % 10 = 0 THEN 'person' ELSE 'tracker' END, CASE WHEN n % 3 = 0 THEN 'assignee-' || n % 7 END, 'ai',
    CASE WHEN n % 5 = 0 THEN 'src/part-' || n || '/**' ELSE '' END, repeat('What is to be done. ', 20)
FROM (SELECT n, CASE WHEN n > 9950 AND n % 10 <> 0 THEN 'leased' WHEN n > 9000 AND n % 10 <> 0 THEN 'queued' WHEN n % 50 = 0 THEN 'failed'
                     WHEN n % 51 = 0 THEN 'stopped' WHEN n % 53 = 0 THEN 'paused' ELSE 'done' END AS state
      FROM generate_series(1, 10000) AS n) AS numbers;
INSERT INTO task_dependencies (task, depends_on)
SELECT t.id, b.id FROM tasks t JOIN tasks b ON b.number = t.number - 1 WHERE t.number % 20 = 0;
INSERT INTO sessions (task, epoch, worker, model, started_at, ended_at, ending)
SELECT id, 1, 'host/1/0', 'm', now(), CASE WHEN state = 'leased' THEN NULL ELSE now() END,
    CASE WHEN state = 'leased' THEN NULL ELSE 'done' END
FROM tasks ORDER BY number;
INSERT INTO sessions (task, epoch, worker, model, started_at, ended_at, ending)
SELECT id, 2, 'host/1/0', 'm', now(), now(), 'done' FROM tasks WHERE number = 1;
INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, recorded_at, token)
SELECT t.id, s, 1, 'note', '{"text":"' || repeat('A step. ', 60) || '"}', 7, now(), md5(t.number || '/' || s)::uuid
FROM tasks t, generate_series(1, 10) AS s WHERE t.number <= 9500 OR t.number > 9950;
INSERT INTO steps (task, seq, epoch, kind, payload, duration_ms, recorded_at, token)
SELECT t.id, s, 2, 'note', '{"text":"' || repeat('A step. ', 60) || '"}', 7, now(), md5(t.number || '/' || s)::uuid
FROM tasks t, generate_series(11, 5010) AS s WHERE t.number = 1;
UPDATE tasks SET last_seq = 5010, epoch = 2, attempt = 2 WHERE number = 1;
INSERT INTO outbox (task, due_at, sent_at) SELECT id, now(), now() FROM tasks;
INSERT INTO effects (task, kind, key, epoch, result, begun_at, done_at)
SELECT id, 'label', state, epoch, '{}', now(), now() FROM tasks WHERE state IN ('done', 'failed', 'stopped', 'paused');
ANALYZE;
