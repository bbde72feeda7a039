-- Whether a queued task lost its worker: it goes before all others.
ALTER TABLE tasks ADD COLUMN takeover boolean NOT NULL DEFAULT false;
