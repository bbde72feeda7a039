-- An effect that is due once per epoch (a label move) names the epoch in a column of its own. The old key
-- was 'state:epoch', and the old column held the lease's epoch, which nobody read; so did the intent.
-- Changed in place, without expand and contract: no version has been released.
ALTER TABLE effects DROP CONSTRAINT effects_pkey;
UPDATE effects SET epoch = 0 WHERE kind <> 'label';
UPDATE effects SET epoch = split_part(key, ':', 2)::bigint, key = split_part(key, ':', 1)
    WHERE kind = 'label';
ALTER TABLE effects ALTER COLUMN epoch SET NOT NULL;
ALTER TABLE effects ADD PRIMARY KEY (task, kind, key, epoch);
ALTER TABLE effects DROP COLUMN intent;
COMMENT ON COLUMN effects.epoch IS 'The epoch that the effect belongs to; 0 where it is due once per task.';
-- No statement searches for effects that are begun and not done.
DROP INDEX effects_open;
