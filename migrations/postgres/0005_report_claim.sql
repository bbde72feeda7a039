-- Which process reports the end of a task that no worker holds, and until when. NULL: none does.
ALTER TABLE tasks ADD COLUMN report_until timestamptz;
ALTER TABLE tasks ADD COLUMN report_nonce uuid;
