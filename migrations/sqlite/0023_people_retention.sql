-- The journals and effects of tasks that people made are removed too. The earlier indexes have those of trackers alone; the programs of the
-- previous version use these as well.
CREATE INDEX IF NOT EXISTS tasks_whose_journal_stays ON tasks (state, updated_at)
    WHERE state IN ('done', 'failed', 'stopped') AND NOT journal_removed;
CREATE INDEX IF NOT EXISTS tasks_whose_effects_stay ON tasks (state, updated_at)
    WHERE state IN ('done', 'failed', 'stopped') AND NOT effects_removed;
DROP INDEX IF EXISTS tasks_with_journal;
DROP INDEX IF EXISTS tasks_with_effects;
