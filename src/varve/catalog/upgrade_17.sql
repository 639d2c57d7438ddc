-- Version 17, code from 16 on: what is said of all datasets is read from an index (docs/scale.md).

-- The current batches, with what is summed and compared of them: of a million among ten million batches, `varve status`
-- read the whole table, for a minute. A publish takes this one entry more for each partition.
create index batch_published on varve.batch (dataset) include (rows, bytes, code_version) where state = 'published';
