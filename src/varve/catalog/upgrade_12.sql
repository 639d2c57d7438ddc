-- Version 12: hashes of the columns that readers read (docs/planning.md).

-- For each set of columns that some reader reads, a hash of the rows as that reader gets them; see column_set.
alter table varve.batch add column digests jsonb;
