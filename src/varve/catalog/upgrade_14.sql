-- Version 14: sets that data fill (docs/partitions.md), and partitions that are accepted as they are (docs/planning.md).

-- Which keys of a set each batch has. A batch never changes, so that a row is written once and stays right.
create table varve.set_keys (
    set_name text not null,
    -- A hash of the expression and of the condition that were evaluated.
    query text not null,
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    -- As they are spelt.
    keys text[] not null,
    -- Values that can be no keys, as people are told.
    refused text[] not null default '{}',
    primary key (set_name, query, dataset, partition, batch_id)
);
create index set_keys_of_dataset on varve.set_keys (dataset);

-- Partitions that are current although an input has changed: a person has accepted them as they are.
create table varve.acceptance (
    dataset text not null,
    partition text not null,
    source text not null,
    source_partition text not null,
    -- The version of the input that makes no difference; '' is that it is not there. Null: the one that a backfill will
    -- make, which is that of the first publish after its mark.
    version text,
    mark bigint,
    backfill bigint references varve.backfill,
    reason text not null,
    accepted_by text not null,
    accepted_at timestamptz not null default clock_timestamp(),
    check (version is not null or (mark is not null and backfill is not null))
);
create index acceptance_of on varve.acceptance (dataset, partition);
create index acceptance_awaited on varve.acceptance (source, source_partition) where version is null;
create trigger changed after insert or update or delete on varve.acceptance
    for each row execute function varve.note_change();

-- What a backfill makes of an input is accepted in the statement that makes it current. And what a partition was accepted
-- with says nothing of its next batch. EXECUTE plans anew, as in varve.in_force.
create function varve.accept_publish() returns trigger language plpgsql as $$
begin
    if exists (select from varve.acceptance) then
        execute 'delete from varve.acceptance a using new_rows n
            where a.dataset = n.dataset and a.partition = n.partition and a.version is not null';
        execute 'update varve.acceptance a set version = n.batch_id::text from new_rows n
            where a.source = n.dataset and a.source_partition = n.partition and a.version is null
                and a.mark < n.batch_id';
    end if;
    return null;
end $$;
create trigger accepted_came after insert on varve.current
    referencing new table as new_rows for each statement execute function varve.accept_publish();
create trigger accepted_moved after update on varve.current
    referencing new table as new_rows for each statement execute function varve.accept_publish();
