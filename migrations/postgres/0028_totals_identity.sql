-- Rows are deleted when they are folded. Where a publication has all tables, as for a change of the server by logical
-- replication, Postgres refuses that in a table without a key.
ALTER TABLE totals REPLICA IDENTITY FULL;
