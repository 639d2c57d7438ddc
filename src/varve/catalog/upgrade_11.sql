-- Version 11: environments (docs/decisions/0016).

create table varve.environment (
    name text primary key,
    -- The last publish that it reads of what it has not computed itself; null: whatever is current.
    base bigint,
    created_by text not null,
    created_at timestamptz not null default clock_timestamp(),
    used_at timestamptz not null default clock_timestamp(),
    -- So long after its last use it may be forgotten; null: never.
    ttl interval
);

create view varve.living_environment as
    select * from varve.environment where ttl is null or used_at + ttl > clock_timestamp();

-- The code with which it computes, as of its last run, and the code that was deployed when its base was chosen.
create table varve.environment_code (
    environment text not null references varve.environment on delete cascade,
    dataset text not null,
    code_version text not null,
    -- Empty: none was deployed.
    base_code text not null,
    source text not null,
    primary key (environment, dataset)
);

-- What it has computed or taken instead of its base.
create table varve.overlay (
    environment text not null references varve.environment on delete cascade,
    dataset text not null,
    partition text not null,
    -- Null: the partition has no batch in the environment.
    batch_id bigint,
    pointed_at timestamptz not null default clock_timestamp(),
    primary key (environment, dataset, partition)
);
create index overlay_of_batch on varve.overlay (dataset, partition, batch_id);

-- What of it is shown by SQL: a table or a view of that name, in a database or schema of its own.
create table varve.environment_view (
    environment text not null references varve.environment on delete restrict,
    database_name text not null,
    table_name text not null,
    store text not null,
    primary key (environment, database_name, table_name)
);

-- The environment in which a batch was computed; empty: none. Its build holds locks of its own.
alter table varve.batch add column environment text not null default '';

create or replace view varve.living as
    select b.* from varve.batch b
    join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted
        and l.database = (select oid from pg_database where datname = current_database())
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(
            b.dataset || case b.environment when '' then '' else '@' || b.environment end || '/' || b.partition, 0)
    where b.state in ('building', 'staged')
      and not exists (select from varve.lease s where s.run_id = b.run_id and s.lost_at is not null);

-- What is current in each environment: the overlay, and for all other partitions the base.
create view varve.environment_current as
    select o.environment, o.dataset, o.partition, o.batch_id from varve.overlay o where o.batch_id is not null
    union all
    select e.name, b.dataset, b.partition, b.batch_id
    from varve.environment e cross join lateral (
        select distinct on (p.dataset, p.partition) p.dataset, p.partition, p.batch_id from varve.publication p
        where p.id <= e.base order by p.dataset, p.partition, p.id desc
    ) b
    where e.base is not null and b.batch_id is not null and not exists (
        select from varve.overlay o where (o.environment, o.dataset, o.partition) = (e.name, b.dataset, b.partition))
    union all
    select e.name, c.dataset, c.partition, c.batch_id from varve.environment e cross join varve.current c
    where e.base is null and not exists (
        select from varve.overlay o where (o.environment, o.dataset, o.partition) = (e.name, c.dataset, c.partition));

-- Whether a living environment needs a batch, which no sweep takes then.
create function varve.in_environment(of_dataset text, of_partition text, of_batch bigint) returns boolean
language sql stable as $$
    select exists (
        select from varve.overlay o join varve.living_environment e on e.name = o.environment
        where (o.dataset, o.partition, o.batch_id) = (of_dataset, of_partition, of_batch)
    ) or exists (
        select from varve.living_environment e cross join lateral (
            select p.batch_id from varve.publication p
            where p.dataset = of_dataset and p.partition = of_partition and p.id <= e.base order by p.id desc limit 1
        ) b
        where b.batch_id = of_batch
    )
$$;
