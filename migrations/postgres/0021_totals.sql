-- What the fleet has done since it began, in parts that are to be added up: nobody has to read all sessions and tasks there ever
-- were for it. An end adds rows in its own transaction and waits for no lock; producers fold the rows into one for each sum.
--   session.ENDING                                          sessions that ended so
--   task.STATE                                              tasks that are over; one that is queued again is taken off
--   input_tokens, cached_tokens, output_tokens, cost_micros  of sessions that ended
CREATE TABLE totals (
    what   text NOT NULL,
    amount bigint NOT NULL
);

CREATE FUNCTION add_task_to_totals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO totals (what, amount)
    SELECT 'task.' || moved.state, moved.amount FROM (VALUES (OLD.state, -1), (NEW.state, 1)) AS moved (state, amount)
    WHERE moved.state IN ('done', 'failed', 'stopped');
    RETURN NULL;
END
$$;

CREATE FUNCTION add_session_to_totals() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO totals (what, amount)
    SELECT used.what, used.amount
    FROM (VALUES ('session.' || NEW.ending, 1::bigint), ('input_tokens', NEW.input_tokens),
                 ('cached_tokens', NEW.cached_tokens), ('output_tokens', NEW.output_tokens),
                 ('cost_micros', NEW.cost_micros)) AS used (what, amount)
    WHERE used.amount <> 0;
    RETURN NULL;
END
$$;

-- A trigger is made under a lock that writes wait for, so no end falls between it and the sums below.
CREATE TRIGGER tasks_add_to_totals AFTER UPDATE OF state ON tasks FOR EACH ROW
    WHEN (OLD.state <> NEW.state
          AND (OLD.state IN ('done', 'failed', 'stopped') OR NEW.state IN ('done', 'failed', 'stopped')))
    EXECUTE FUNCTION add_task_to_totals();
CREATE TRIGGER sessions_add_to_totals AFTER UPDATE OF ended_at ON sessions FOR EACH ROW
    WHEN (OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL)
    EXECUTE FUNCTION add_session_to_totals();

INSERT INTO totals (what, amount)
SELECT 'task.' || state, count(*) FROM tasks WHERE state IN ('done', 'failed', 'stopped') GROUP BY state;
INSERT INTO totals (what, amount)
SELECT used.what, used.amount
FROM (SELECT sum(input_tokens)::bigint AS input, sum(cached_tokens)::bigint AS cached,
             sum(output_tokens)::bigint AS output, sum(cost_micros)::bigint AS cost
      FROM sessions WHERE ended_at IS NOT NULL) AS ended,
    LATERAL (VALUES ('input_tokens', input), ('cached_tokens', cached), ('output_tokens', output),
                    ('cost_micros', cost)) AS used (what, amount)
WHERE used.amount <> 0;
INSERT INTO totals (what, amount)
SELECT 'session.' || ending, count(*) FROM sessions WHERE ended_at IS NOT NULL GROUP BY ending;
