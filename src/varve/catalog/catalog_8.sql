-- Version 8 of the catalog: partitions that grow file by file. A batch of one holds the rows of several runs, each of
-- which has read some files; and one that is closed may be opened again by a person. Run in one transaction by
-- Catalog.ensure_schema, over version 7.

-- The rows that one run has read, and in which table they lie (in the lake: which folder they were first written to).
-- Written with the batch of that run; a part is never changed.
create table varve.part (
    dataset text not null,
    partition text not null,
    -- The batch of the run that has read them.
    part_id bigint not null,
    location text not null,
    rows bigint not null,
    bytes bigint not null,
    primary key (dataset, partition, part_id)
);

-- The files that they were read from, and in which state those were.
create table varve.part_file (
    dataset text not null,
    partition text not null,
    part_id bigint not null,
    -- Below the folder of the dataset.
    name text not null,
    token text not null,
    fingerprint text not null,
    bytes bigint not null,
    primary key (dataset, partition, part_id, name)
);

-- The parts whose rows a batch holds, in order.
create table varve.batch_part (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    parts bigint[] not null,
    -- Why it was made as it was: what was added, or why all was read.
    reason text not null,
    primary key (dataset, partition, batch_id)
);

-- Closed partitions that a person has opened again, from then on; or closed again, which is a later row.
create table varve.reopened (
    dataset text not null,
    partition text not null,
    is_open boolean not null,
    owner text not null,
    reason text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (dataset, partition, at)
);
