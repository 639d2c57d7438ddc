-- The catalog: which batch of each partition is current, and what every batch was made from (docs/decisions/0002).
-- Run whole, in one transaction, by CatalogSchema.ensure (schema.py), which also writes the version that this file makes.
-- Each later version is a file of its own (upgrade_10.sql), so that a new catalog and an old one come to be the same.

create schema varve;

create table varve.schema_version (version int not null);
insert into varve.schema_version values (9);

-- One row: the last batch id that was given out. Ids are milliseconds, and grow even when the server's clock does not.
create table varve.clock (last_batch_id bigint not null);
insert into varve.clock values (0);


-- Datasets and their batches (docs/decisions/0001).

create table varve.dataset (
    dataset text primary key,
    store text not null,
    -- The declaration that its store used last: columns and partition columns with types and comments.
    declaration jsonb not null,
    updated_at timestamptz not null default now(),
    -- The declaration whose columns the projection (the Hive table) has; null where nobody has looked.
    shown_declaration jsonb
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
    -- A hash of the rows that does not depend on their order, where the settings ask for one.
    content text,
    -- {column: [lowest, highest]} of the columns for which the dataset asks.
    statistics jsonb not null default '{}',
    -- From when on nobody may point at the batch, pin it or read it; its data may be deleted later.
    swept_at timestamptz,
    -- When its data was deleted. The next sweep begins with the swept batches that have no such time.
    deleted_at timestamptz,
    failed_at timestamptz,
    primary key (dataset, partition, batch_id)
);
create index batch_in_flight on varve.batch (dataset, partition) where state in ('building', 'staged');
create index batch_retired on varve.batch (dataset, retired_at) where state = 'retired';
create index batch_undeleted on varve.batch (dataset) where state = 'swept' and deleted_at is null;
create index batch_failed on varve.batch (dataset, partition) where state = 'failed';
create index batch_content on varve.batch (dataset, partition, content) where content is not null;

-- A partition is materialised when it has a row here. No foreign key leads to varve.batch: its check took twice as long
-- as the row itself. Instead, a publish counts the batches in the statement that marks them as published, and a batch that
-- is in flight or current is never deleted.
create table varve.current (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    -- The batch that readers of the projection (the Hive table) see; behind batch_id until the projection has followed.
    -- 0 while the projection is changed and shows some batch of the partition, -1 while it may show none; null: it shows none.
    projected_batch_id bigint,
    primary key (dataset, partition)
);
create index current_lagging on varve.current (dataset) where projected_batch_id is distinct from batch_id;

-- Partitions that have no batch any more, and that the projection may still show.
create table varve.withdrawn (
    dataset text not null,
    partition text not null,
    primary key (dataset, partition)
);


-- History: what was current when.

-- Every change of what is current, oldest first by id; clocks may go back, ids do not. What a publish says of all its
-- partitions is one row here: with one row for each partition, a publish of a thousand of them wrote twice as much.
create table varve.publish (
    id bigint generated always as identity unique,
    dataset text not null,
    -- Which build did it: builds of one partition follow each other, and so do their ids, in every catalog.
    build_id bigint not null,
    kind text not null check (kind in ('publish', 'rollback')),
    run_id text not null,
    reason text not null default '',
    published_at timestamptz not null,
    -- Whether the store's own record has it too. A lost catalog is rebuilt from those records.
    recorded boolean not null default false,
    primary key (dataset, build_id)
);
create index publish_of_run on varve.publish (run_id);
create index publish_unrecorded on varve.publish (dataset) where not recorded;

-- Which batches it made current.
create table varve.published (
    dataset text not null,
    partition text not null,
    build_id bigint not null,
    -- Null: from then on the partition has no batch.
    batch_id bigint,
    primary key (dataset, partition, build_id)
);

create view varve.publication as
    select p.id, p.dataset, c.partition, c.batch_id, p.kind, p.build_id, p.run_id, p.reason, p.published_at, p.recorded
    from varve.publish p join varve.published c using (dataset, build_id);

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

create view varve.valid_pin as
    select * from varve.pin where expires_at is null or expires_at > clock_timestamp();

-- Partitions that a person rolled back: the sensors leave them alone until one of their inputs is newer than this.
create table varve.hold (
    dataset text not null,
    partition text not null,
    since timestamptz not null,
    primary key (dataset, partition)
);


-- Runs that live (docs/decisions/0012).

-- One row for each run that has begun and not ended. All times are of this server's clock: no other clock is asked.
create table varve.lease (
    run_id text primary key,
    -- For people: which process on which host has it, or who has launched the run.
    holder text not null,
    -- Whether the run's own process has the lease. Until then it is kept for a process that is still starting.
    taken boolean not null,
    term interval not null,
    taken_at timestamptz not null default clock_timestamp(),
    renewed_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    -- When somebody first saw that it had expired. Only a second look, some time later, declares the run dead: after an
    -- outage of this server all leases have expired, and the runs that live need a moment to renew theirs.
    missed_at timestamptz,
    -- Since when the run counts as dead. It stays dead: what it would publish is refused.
    lost_at timestamptz,
    lost_because text not null default ''
);
create index lease_lost on varve.lease (lost_at) where lost_at is not null;

-- The batches of builds that live: the build's session holds the lock of the partition, and nobody has declared its run
-- dead (a process that was frozen keeps its session). The view looks at the locks and does not try to take them: a trial,
-- however short, could make a run fail that begins at that moment.
create view varve.living as
    select b.* from varve.batch b
    join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted
        and l.database = (select oid from pg_database where datname = current_database())
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(b.dataset || '/' || b.partition, 0)
    where b.state in ('building', 'staged')
      and not exists (select from varve.lease s where s.run_id = b.run_id and s.lost_at is not null);


-- Files that arrive (docs/decisions/0009).

-- What lies in the landing folders, as the arrival sensor last saw it settled.
create table varve.arrival (
    dataset text not null,
    partition text not null,
    uri text not null,
    bytes bigint not null,
    fingerprint text not null,
    arrived_at timestamptz not null default now(),
    -- Differs when the file has changed, and costs less than the fingerprint. Empty: not known, so look at the file again.
    stamp text not null default '',
    primary key (dataset, partition)
);

-- What lies in landing folders and in tables of others and is not taken, until it goes, changes, or its time comes.
create table varve.rejected_arrival (
    dataset text not null,
    uri text not null,
    kind text not null,
    reason text not null,
    -- The partition to which it belongs, where it belongs to one.
    partition text,
    bytes bigint not null,
    stamp text not null,
    changed_at timestamptz,
    -- Since when it is there and not taken, and since when it is as it is now.
    since timestamptz not null default now(),
    seen_at timestamptz not null default now(),
    -- When it is taken by itself, if nothing else happens.
    until timestamptz,
    -- The declaration by which it was judged: under another one it is looked at again.
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


-- Partitions that grow file by file (docs/decisions/0013). A batch of one holds the rows of several runs, each of which
-- has read some files.

-- The rows that one run has read, and in which table they lie (in the lake: in which folder they were written first).
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

-- The files from which they were read, and in which state those files were.
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
    -- Why it was made as it was: what was added, or why all files were read.
    reason text not null,
    primary key (dataset, partition, batch_id)
);

-- Closed partitions that a person has opened again, from `at` on; a later row may say that they are closed again.
create table varve.reopened (
    dataset text not null,
    partition text not null,
    is_open boolean not null,
    owner text not null,
    reason text not null,
    at timestamptz not null default clock_timestamp(),
    primary key (dataset, partition, at)
);


-- What the planner knows beside batches, and what has changed since it looked (docs/decisions/0006).

-- "Compute these again": a person asks for it, the sensors work through it.
create table varve.backfill (
    id bigint generated always as identity primary key,
    reason text not null,
    owner text not null,
    state text not null default 'running' check (state in ('running', 'paused', 'cancelled')),
    -- {dataset: how many of its partitions were marked}
    marked jsonb not null,
    -- {dataset: how many of its partitions lost their marks when the backfill was cancelled}
    undone jsonb not null default '{}',
    created_at timestamptz not null default clock_timestamp()
);

-- "This partition's data is wrong": kept until a batch whose build began later is current.
create table varve.dirty (
    dataset text not null,
    partition text not null,
    backfill bigint not null references varve.backfill,
    -- From the clock of batch ids: builds with a lower id began before the mark, and do not take it away.
    number bigint not null,
    primary key (dataset, partition, backfill)
);
create index dirty_of_backfill on varve.dirty (backfill);

-- Every change of what a partition is judged by. The planner reads the rows by the transactions that wrote them, and not
-- by an id of their own: ids are not given out in the order of commits, and a late one would be missed.
create table varve.change (
    dataset text not null,
    partition text not null,
    xid xid8 not null default pg_current_xact_id(),
    at timestamptz not null default clock_timestamp()
);
create index change_by_xid on varve.change (xid);
create index change_by_age on varve.change (at);

-- Who marks batches as failed adds rows here in the same statement (statements.py); there is no trigger on varve.batch,
-- because it would be asked about each row of every publish. What becomes current is noted by triggers that run once for
-- each statement: row by row, two triggers in PL/pgSQL were most of the time of a large publish.

create function varve.note_change() returns trigger language plpgsql as $$
begin
    insert into varve.change (dataset, partition)
        select r.dataset, r.partition from (select (case when tg_op = 'DELETE' then old else new end).*) r;
    return null;
end $$;

-- Notes the change, and takes the marks away that are older than the batch, whichever way it became current. A connection
-- keeps the plan of a statement, which may have been made for a publish of nothing: EXCEPT needs no good estimate, and
-- EXECUTE plans anew. With a join, 10,000 partitions took 45 s.
create function varve.in_force() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        insert into varve.change (dataset, partition)
            select dataset, partition from (
                select dataset, partition, batch_id from new_rows except select dataset, partition, batch_id from old_rows
            ) moved;
    else
        insert into varve.change (dataset, partition) select dataset, partition from new_rows;
    end if;
    execute 'delete from varve.dirty d using new_rows n
        where d.dataset = n.dataset and d.partition = n.partition and d.number < n.batch_id';
    return null;
end $$;

create function varve.out_of_force() returns trigger language plpgsql as $$
begin
    insert into varve.change (dataset, partition) select dataset, partition from old_rows;
    return null;
end $$;

-- Three triggers, because a trigger that sees all rows of a statement may name neither columns nor two events.
create trigger came after insert on varve.current
    referencing new table as new_rows for each statement execute function varve.in_force();
create trigger moved after update on varve.current
    referencing old table as old_rows new table as new_rows for each statement execute function varve.in_force();
create trigger went after delete on varve.current
    referencing old table as old_rows for each statement execute function varve.out_of_force();

create trigger changed after insert or update or delete on varve.dirty
    for each row execute function varve.note_change();
create trigger changed after insert or update or delete on varve.arrival
    for each row execute function varve.note_change();
create trigger changed after insert or update or delete on varve.hold
    for each row execute function varve.note_change();
