-- Renames in place, without expand and contract: no version has been released, so no process of an older
-- version can run beside this schema.
ALTER TABLE tasks RENAME COLUMN wish TO request;
ALTER TABLE tasks RENAME COLUMN wish_reason TO request_reason;
ALTER TABLE tasks DROP CONSTRAINT tasks_wish_check;
UPDATE tasks SET request = 'stop' WHERE request = 'cancel';
ALTER TABLE tasks ADD CONSTRAINT tasks_request_check CHECK (request IN ('stop', 'pause'));
COMMENT ON COLUMN tasks.request IS 'What a person asked of a leased row: stop or pause.';
