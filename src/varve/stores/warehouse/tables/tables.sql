-- The warehouse's own notes beside the catalog. Run whole, in one transaction, by notes.ensure_tables.

-- Which pieces of which period table are loaded: written in the transaction that loads them, so that a piece that is
-- loaded again (a task retried, or started twice) finds itself here and adds nothing.
create table varve.loaded (
    table_name text not null,
    piece text not null,
    rows bigint not null,
    loaded_at timestamptz not null default clock_timestamp(),
    primary key (table_name, piece)
);

-- The shape that a dataset's views have: each change of columns is a generation, with leaf views of its own names.
create table varve.view (
    dataset text primary key,
    generation bigint not null
);

-- In which leaf view of its dataset a partition shows.
create table varve.leaf (
    dataset text not null,
    partition text not null,
    leaf int not null,
    primary key (dataset, partition)
);
create index leaf_of_dataset on varve.leaf (dataset, leaf);

-- Batches whose rows lie in a table together with others', beside or instead of a table of their own.
create table varve.compacted (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    table_name text not null,
    compacted_at timestamptz not null default clock_timestamp(),
    primary key (dataset, partition, batch_id)
);
create index compacted_table on varve.compacted (dataset, table_name);
