-- The agent that works on the task. NULL: the default one. Programs that do not know it use that for every task.
ALTER TABLE tasks ADD COLUMN agent TEXT;
