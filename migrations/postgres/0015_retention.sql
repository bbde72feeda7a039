-- What retention has removed of a task that is over. The row, its dedup key, its trigger and the sums of its sessions stay.
ALTER TABLE tasks ADD COLUMN journal_removed boolean NOT NULL DEFAULT false;
ALTER TABLE tasks ADD COLUMN effects_removed boolean NOT NULL DEFAULT false;
-- What there is left to remove, the oldest of each outcome first.
CREATE INDEX IF NOT EXISTS tasks_with_journal ON tasks (state, updated_at)
    WHERE origin = 'tracker' AND state IN ('done', 'failed', 'stopped') AND NOT journal_removed;
CREATE INDEX IF NOT EXISTS tasks_with_effects ON tasks (state, updated_at)
    WHERE origin = 'tracker' AND state IN ('done', 'failed', 'stopped') AND NOT effects_removed;

-- The journal stays append-only, but for that of a task that is over and whose row says that it is being removed.
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT 1 FROM tasks
                   WHERE id = OLD.task AND journal_removed AND state IN ('done', 'failed', 'stopped')) THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'the journal is append-only';
END
$$;
