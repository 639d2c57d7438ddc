-- Version 5 of the catalog: what a publish says of all its partitions is a row of its own, and what nobody asks is
-- gone: a publish of a thousand partitions writes half as much. Run in one transaction by Catalog.ensure_schema, over
-- version 4.

-- Every change of what is in force, oldest first by id; clocks may go back, ids do not.
create table varve.publish (
    id bigint generated always as identity unique,
    dataset text not null,
    -- Which build did it: builds of one partition follow each other, and so do their ids, in every catalog.
    build_id bigint not null,
    kind text not null check (kind in ('publish', 'rollback')),
    run_id text not null,
    reason text not null default '',
    published_at timestamptz not null,
    -- Whether the store's own record has it too, from which a lost catalog is rebuilt.
    recorded boolean not null default false,
    primary key (dataset, build_id)
);
create index publish_of_run on varve.publish (run_id);
create index publish_unrecorded on varve.publish (dataset) where not recorded;

-- What it put in force.
create table varve.published (
    dataset text not null,
    partition text not null,
    build_id bigint not null,
    -- Null: since then the partition has no batch.
    batch_id bigint,
    primary key (dataset, partition, build_id)
);

insert into varve.publish (dataset, build_id, kind, run_id, reason, published_at, recorded)
    select dataset, build_id, min(kind), min(run_id), min(reason), min(published_at), bool_and(recorded)
    from varve.publication group by dataset, build_id order by min(id);
insert into varve.published (dataset, partition, build_id, batch_id)
    select dataset, partition, build_id, batch_id from varve.publication;
drop table varve.publication;

create view varve.publication as
    select p.id, p.dataset, c.partition, c.batch_id, p.kind, p.build_id, p.run_id, p.reason, p.published_at, p.recorded
    from varve.publish p join varve.published c using (dataset, build_id);

drop index varve.batch_of_run;

-- A publish counts the batches that it puts in force, in the same statement that marks them; what is in flight or in
-- force is never deleted. The check of each row by the foreign key took twice as long as the row.
alter table varve.current drop constraint current_dataset_partition_batch_id_fkey;

-- A failure is noted by the statement that tells it (statements.py).
drop trigger failed on varve.batch;
drop trigger changed on varve.batch;
drop function varve.note_failure();
