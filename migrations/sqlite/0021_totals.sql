-- What the fleet has done since it began, in parts that are to be added up: nobody has to read all sessions and tasks there ever
-- were for it. An end adds rows in its own transaction; producers fold the rows into one for each sum.
--   session.ENDING                                          sessions that ended so
--   task.STATE                                              tasks that are over; one that is queued again is taken off
--   input_tokens, cached_tokens, output_tokens, cost_micros  of sessions that ended
CREATE TABLE totals (
    what   TEXT NOT NULL,
    amount INTEGER NOT NULL
) STRICT;

CREATE TRIGGER tasks_add_to_totals AFTER UPDATE OF state ON tasks
WHEN OLD.state <> NEW.state
    AND (OLD.state IN ('done', 'failed', 'stopped') OR NEW.state IN ('done', 'failed', 'stopped'))
BEGIN
    INSERT INTO totals (what, amount)
    SELECT 'task.' || moved.state, moved.amount
    FROM (SELECT OLD.state AS state, -1 AS amount UNION ALL SELECT NEW.state, 1) AS moved
    WHERE moved.state IN ('done', 'failed', 'stopped');
END;
CREATE TRIGGER sessions_add_to_totals AFTER UPDATE OF ended_at ON sessions
WHEN OLD.ended_at IS NULL AND NEW.ended_at IS NOT NULL
BEGIN
    INSERT INTO totals (what, amount)
    SELECT used.what, used.amount
    FROM (SELECT 'session.' || NEW.ending AS what, 1 AS amount UNION ALL SELECT 'input_tokens', NEW.input_tokens
          UNION ALL SELECT 'cached_tokens', NEW.cached_tokens UNION ALL SELECT 'output_tokens', NEW.output_tokens
          UNION ALL SELECT 'cost_micros', NEW.cost_micros) AS used
    WHERE used.amount <> 0;
END;

INSERT INTO totals (what, amount)
SELECT 'task.' || state, count(*) FROM tasks WHERE state IN ('done', 'failed', 'stopped') GROUP BY state;
INSERT INTO totals (what, amount)
SELECT used.what, used.amount
FROM (SELECT 'input_tokens' AS what, sum(input_tokens) AS amount FROM sessions WHERE ended_at IS NOT NULL
      UNION ALL SELECT 'cached_tokens', sum(cached_tokens) FROM sessions WHERE ended_at IS NOT NULL
      UNION ALL SELECT 'output_tokens', sum(output_tokens) FROM sessions WHERE ended_at IS NOT NULL
      UNION ALL SELECT 'cost_micros', sum(cost_micros) FROM sessions WHERE ended_at IS NOT NULL) AS used
WHERE used.amount <> 0;
INSERT INTO totals (what, amount)
SELECT 'session.' || ending, count(*) FROM sessions WHERE ended_at IS NOT NULL GROUP BY ending;
