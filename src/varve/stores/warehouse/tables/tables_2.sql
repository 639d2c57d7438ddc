-- Further notes of the warehouse, for warehouses of before too: every statement may find its table there already.

-- What we last wrote as the comment of a view ('') and of its columns: what says something else now, somebody else has
-- written, and it stays.
create table if not exists varve.view_comment (
    dataset text not null,
    column_name text not null,
    comment text not null,
    primary key (dataset, column_name)
);

-- Tables of others in our schemas that a sweep has named already.
create table if not exists varve.stray (
    table_name text primary key,
    named_at timestamptz not null default clock_timestamp()
);

-- Sessions of ours that fill tables and read no view: no publish waits for their snapshots. A reader cannot write here,
-- and cannot be one of these: a session is its process and when that was started.
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
