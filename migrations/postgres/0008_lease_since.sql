-- When the lease was taken or last extended, by the database's clock. In the future: the clock was set back
-- since. NULL: no lease, or one of a program that does not write this.
ALTER TABLE tasks ADD COLUMN lease_since timestamptz;
