-- The catalog: which batch of each partition is current, and what every batch was made from (docs/decisions/0002).
-- Run whole, in one transaction, by Catalog.ensure_schema. This is version 1; each later version is a step of its own
-- (catalog_2.sql), so that a new catalog and an old one come to be the same.

create schema varve;

create table varve.schema_version (version int not null);
insert into varve.schema_version values (1);

-- One row: the last batch id given out. Ids are milliseconds, yet grow even when clocks do not.
create table varve.clock (last_batch_id bigint not null);
insert into varve.clock values (0);

create table varve.dataset (
    dataset text primary key,
    store text not null,
    -- The declaration as its store last used it: columns and partition columns with types and comments.
    declaration jsonb not null,
    updated_at timestamptz not null default now()
);

create table varve.batch (
    dataset text not null references varve.dataset,
    partition text not null,
    batch_id bigint not null,
    state text not null check (state in ('building', 'staged', 'published', 'retired', 'swept', 'failed')),
    run_id text not null,
    code_version text not null,
    location text,
    rows bigint,
    bytes bigint,
    files int,
    -- The trace: [[source, partition, version], ...]
    inputs jsonb not null default '[]',
    failure text,
    started_at timestamptz not null default now(),
    staged_at timestamptz,
    published_at timestamptz,
    retired_at timestamptz,
    primary key (dataset, partition, batch_id)
);
create index batch_in_flight on varve.batch (dataset, partition) where state in ('building', 'staged');
create index batch_of_run on varve.batch (run_id);

-- The existence of a row here is what "materialised" means.
create table varve.current (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    -- The batch that readers of the projection (the Hive table) see; behind batch_id until the projection has followed.
    projected_batch_id bigint,
    primary key (dataset, partition),
    foreign key (dataset, partition, batch_id) references varve.batch
);
create index current_lagging on varve.current (dataset) where projected_batch_id is distinct from batch_id;

-- What lies in the landing folders, as the arrival sensor last saw it settled.
create table varve.arrival (
    dataset text not null,
    partition text not null,
    uri text not null,
    bytes bigint not null,
    fingerprint text not null,
    arrived_at timestamptz not null default now(),
    primary key (dataset, partition)
);
