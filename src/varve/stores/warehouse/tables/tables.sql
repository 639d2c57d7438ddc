-- The warehouse's own notes, beside the catalog in schema varve. Run whole, in one transaction, by notes.ensure_tables,
-- wherever the last table of this file is missing. Every statement may find its table there already, so a new table is
-- added at the end.

-- Which pieces of which period table are loaded. The transaction that loads a piece writes its row, so that a piece that
-- is loaded again (a task that was retried, or started twice) finds its row here and adds nothing.
create table if not exists varve.loaded (
    table_name text not null,
    piece text not null,
    rows bigint not null,
    loaded_at timestamptz not null default clock_timestamp(),
    primary key (table_name, piece)
);

-- The shape of a dataset's views: each change of columns is a generation, whose leaf views have names of their own.
create table if not exists varve.view (
    dataset text primary key,
    generation bigint not null
);

-- Which leaf view of its dataset shows a partition.
create table if not exists varve.leaf (
    dataset text not null,
    partition text not null,
    leaf int not null,
    primary key (dataset, partition)
);
create index if not exists leaf_of_dataset on varve.leaf (dataset, leaf);

-- Batches whose rows lie in a table together with those of others, beside or instead of a table of their own.
create table if not exists varve.compacted (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    table_name text not null,
    compacted_at timestamptz not null default clock_timestamp(),
    primary key (dataset, partition, batch_id)
);
create index if not exists compacted_table on varve.compacted (dataset, table_name);

-- What we last wrote as the comment of a view ('') and of its columns. A comment that differs from it was written by
-- somebody else, and stays.
create table if not exists varve.view_comment (
    dataset text not null,
    column_name text not null,
    comment text not null,
    primary key (dataset, column_name)
);

-- Tables in our schemas that are not ours and that a sweep has named already.
create table if not exists varve.stray (
    table_name text primary key,
    named_at timestamptz not null default clock_timestamp()
);

-- Sessions of ours that fill tables and read no view: a publish does not wait for their snapshots. A reader cannot write
-- here, and cannot be mistaken for one of these: a session is its process and the time at which that was started.
create table if not exists varve.loading (
    pid int not null,
    backend_start timestamptz not null,
    primary key (pid, backend_start)
);

-- What each table held when it was loaded: its rows, and the sum of their hashes.
create table if not exists varve.sealed (
    table_name text primary key,
    rows bigint not null,
    hash numeric not null
);

-- To which roles we have granted SELECT on a view, because its dataset declared it.
create table if not exists varve.view_grant (
    dataset text not null,
    role_name text not null,
    primary key (dataset, role_name)
);
