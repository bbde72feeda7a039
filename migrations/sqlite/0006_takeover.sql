-- Whether a queued task lost its worker: it goes before all others.
ALTER TABLE tasks ADD COLUMN takeover INTEGER NOT NULL DEFAULT 0;
