-- Version 7 of the catalog: what arrived and cannot be taken, and what a tick had to leave out, are states that people
-- see. Run in one transaction by Catalog.ensure_schema, over version 6.

-- What tells a file that is as it was from one that has changed; empty: from before this version, so look at it again.
alter table varve.arrival add column stamp text not null default '';

-- What lies in landing folders and in tables of others and is not taken, until it goes, changes, or its time comes.
create table varve.rejected_arrival (
    dataset text not null,
    uri text not null,
    kind text not null,
    reason text not null,
    -- The partition that it is of, where it is of one.
    partition text,
    bytes bigint not null,
    stamp text not null,
    changed_at timestamptz,
    -- Since when it is there and not taken, and since when it is as it is now.
    since timestamptz not null default now(),
    seen_at timestamptz not null default now(),
    -- When it is taken by itself, if nothing else happens.
    until timestamptz,
    -- The declaration by which it was judged: after another one it is looked at again.
    declared text not null,
    primary key (dataset, uri)
);

-- What the last tick of a sensor could not do: look at a dataset, judge it, or ask for a run that Dagster would refuse.
create table varve.left_out (
    sensor text not null,
    dataset text not null,
    kind text not null check (kind in ('look', 'plan', 'request')),
    subject text not null,
    partitions text[] not null,
    reason text not null,
    since timestamptz not null default now(),
    primary key (sensor, dataset, kind, subject)
);
