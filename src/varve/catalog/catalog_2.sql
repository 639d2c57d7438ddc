-- Version 2 of the catalog: what every partition's current batch was and when, pins, the sweep's list, statistics.
-- Run in one transaction by Catalog.ensure_schema, over a catalog of version 1 with or without rows.

alter table varve.batch
    -- An order-independent hash of the rows, where the settings ask for one.
    add column content text,
    -- {column: [lowest, highest]} of the columns a dataset asks for.
    add column statistics jsonb not null default '{}',
    -- Since when nobody may point at it, pin it or read it; the deletion itself may come later.
    add column swept_at timestamptz,
    -- When its data was deleted; a swept batch without it is what the next sweep begins with.
    add column deleted_at timestamptz;
create index batch_retired on varve.batch (dataset, retired_at) where state = 'retired';
create index batch_undeleted on varve.batch (dataset) where state = 'swept' and deleted_at is null;

-- The declaration whose columns the projection (the Hive table) has; null where nobody has looked.
alter table varve.dataset add column shown_declaration jsonb;

-- Every change of what is in force, oldest first by id; clocks may go back, ids do not.
create table varve.publication (
    id bigint generated always as identity primary key,
    dataset text not null,
    partition text not null,
    -- Null: since then the partition has no batch.
    batch_id bigint,
    kind text not null check (kind in ('publish', 'rollback')),
    -- Which build did it: builds of one partition follow each other, and so do their ids, in every catalog.
    build_id bigint not null,
    run_id text not null,
    reason text not null default '',
    published_at timestamptz not null,
    -- Whether the store's own record has it too, from which a lost catalog is rebuilt.
    recorded boolean not null default false,
    foreign key (dataset, partition, batch_id) references varve.batch
);
create index publication_of_partition on varve.publication (dataset, partition, id desc);
create unique index publication_of_build on varve.publication (dataset, partition, build_id);
create index publication_of_run on varve.publication (run_id);
create index publication_unrecorded on varve.publication (dataset) where not recorded;
insert into varve.publication (dataset, partition, batch_id, kind, build_id, run_id, published_at)
    select dataset, partition, batch_id, 'publish', batch_id, run_id, published_at from varve.batch
    where published_at is not null order by published_at, batch_id;

-- "Never sweep this batch."
create table varve.pin (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    owner text not null,
    reason text not null,
    pinned_at timestamptz not null default clock_timestamp(),
    -- Null: until it is unpinned.
    expires_at timestamptz,
    primary key (dataset, partition, batch_id, owner),
    foreign key (dataset, partition, batch_id) references varve.batch
);

-- Partitions that have no batch any more, and that the projection may still show.
create table varve.withdrawn (
    dataset text not null,
    partition text not null,
    primary key (dataset, partition)
);

-- Partitions that a person took back: the sensors leave them alone until one of their inputs is newer than this.
create table varve.hold (
    dataset text not null,
    partition text not null,
    since timestamptz not null,
    primary key (dataset, partition)
);

-- The batches of builds that live: their session holds the lock of the partition. Looks at the lock instead of trying
-- it: a trial, however short, could make the run fail that begins just then.
create view varve.living as
    select b.* from varve.batch b
    join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted
        and l.database = (select oid from pg_database where datname = current_database())
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(b.dataset || '/' || b.partition, 0)
    where b.state in ('building', 'staged');

create view varve.valid_pin as
    select * from varve.pin where expires_at is null or expires_at > clock_timestamp();
