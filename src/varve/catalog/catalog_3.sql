-- Version 3 of the catalog: what the planner knows of partitions beside their batches, and what has changed since it
-- looked. Run in one transaction by Catalog.ensure_schema, over a catalog of version 2 with or without rows.

-- "Compute these again": asked for by a person, worked through by the sensors.
create table varve.backfill (
    id bigint generated always as identity primary key,
    reason text not null,
    owner text not null,
    state text not null default 'running' check (state in ('running', 'paused', 'cancelled')),
    -- {dataset: how many of its partitions were marked}
    marked jsonb not null,
    -- The same of those whose marks were taken away when it was cancelled.
    undone jsonb not null default '{}',
    created_at timestamptz not null default clock_timestamp()
);

-- "This partition's data is wrong": kept until a batch whose build began later is in force.
create table varve.dirty (
    dataset text not null,
    partition text not null,
    backfill bigint not null references varve.backfill,
    -- From the clock of batch ids: builds with a lower id began before, and do not take the mark away.
    number bigint not null,
    primary key (dataset, partition, backfill)
);
create index dirty_of_backfill on varve.dirty (backfill);

alter table varve.batch add column failed_at timestamptz;
create index batch_failed on varve.batch (dataset, partition) where state = 'failed';
create index batch_content on varve.batch (dataset, partition, content) where content is not null;

-- Every change of what a partition is judged by. Rows are read by the transactions that wrote them, not by an id of
-- their own: ids are not given out in the order of commits, and a late one would be missed.
create table varve.change (
    dataset text not null,
    partition text not null,
    xid xid8 not null default pg_current_xact_id(),
    at timestamptz not null default clock_timestamp()
);
create index change_by_xid on varve.change (xid);
create index change_by_age on varve.change (at);

create function varve.note_change() returns trigger language plpgsql as $$
begin
    insert into varve.change (dataset, partition)
        select r.dataset, r.partition from (select (case when tg_op = 'DELETE' then old else new end).*) r;
    return null;
end $$;

create function varve.note_failure() returns trigger language plpgsql as $$
begin
    new.failed_at := clock_timestamp();
    return new;
end $$;

-- A batch that began after a mark takes it away, whichever way it came into force.
create function varve.clean() returns trigger language plpgsql as $$
begin
    delete from varve.dirty d
        where d.dataset = new.dataset and d.partition = new.partition and d.number < new.batch_id;
    return null;
end $$;

create trigger changed after insert or delete or update of batch_id on varve.current
    for each row execute function varve.note_change();
create trigger cleaned after insert or update of batch_id on varve.current
    for each row execute function varve.clean();
create trigger failed before update of state on varve.batch
    for each row when (new.state = 'failed' and old.state <> 'failed') execute function varve.note_failure();
create trigger changed after update of state on varve.batch
    for each row when (new.state = 'failed' and old.state <> 'failed') execute function varve.note_change();
create trigger changed after insert or update or delete on varve.dirty
    for each row execute function varve.note_change();
create trigger changed after insert or update or delete on varve.arrival
    for each row execute function varve.note_change();
create trigger changed after insert or update or delete on varve.hold
    for each row execute function varve.note_change();
