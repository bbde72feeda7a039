-- An effect that is due once per epoch (a label move) names the epoch in a column of its own. The old key
-- was 'state:epoch', and the old column held the lease's epoch, which nobody read; so did the intent.
-- Changed in place, without expand and contract: no version has been released.
CREATE TABLE effects_new (
    task     TEXT NOT NULL REFERENCES tasks,
    kind     TEXT NOT NULL,
    key      TEXT NOT NULL,
    -- The epoch that the effect belongs to; 0 where it is due once per task.
    epoch    INTEGER NOT NULL,
    result   TEXT,
    begun_at INTEGER NOT NULL,
    done_at  INTEGER,
    PRIMARY KEY (task, kind, key, epoch),
    CONSTRAINT effects_end_is_whole CHECK ((done_at IS NULL) = (result IS NULL))
) STRICT;

INSERT INTO effects_new
SELECT task, kind,
    CASE kind WHEN 'label' THEN substr(key, 1, instr(key, ':') - 1) ELSE key END,
    CASE kind WHEN 'label' THEN CAST(substr(key, instr(key, ':') + 1) AS INTEGER) ELSE 0 END,
    result, begun_at, done_at
FROM effects;
DROP TABLE effects;
ALTER TABLE effects_new RENAME TO effects;
