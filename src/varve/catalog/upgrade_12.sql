-- Version 12, generations: what the batches of a dataset have in common that readers see (docs/decisions/0017).

-- Every generation that was ever begun; 0 is the first one, which has a row once there is another.
create table varve.generation (
    dataset text not null,
    -- From the clock of batch ids.
    number bigint not null,
    store text not null,
    -- The last declaration that it was published with, or with which it is being built.
    declaration jsonb not null,
    begun_at timestamptz not null default clock_timestamp(),
    -- Whether readers of its store may still see it although the dataset has moved to another store.
    is_shown boolean not null default false,
    primary key (dataset, number)
);

-- The generation that readers see.
alter table varve.dataset add column generation bigint not null default 0;
-- The generation to which a batch belongs: only batches of one generation are current together.
alter table varve.batch add column generation bigint not null default 0;
create index batch_of_later_generation on varve.batch (dataset, generation) where generation <> 0;

-- The generation in which an environment builds a dataset, where that is not simply the first one.
create table varve.environment_generation (
    environment text not null references varve.environment on delete cascade,
    dataset text not null,
    generation bigint not null,
    declaration jsonb not null,
    primary key (environment, dataset)
);

-- Whether an environment may have this batch: it has only those of its own generation.
create function varve.of_generation(in_environment text, of_dataset text, of_partition text, of_batch bigint)
returns boolean language sql stable as $$
    select not exists (
        select from varve.environment_generation g
        where (g.environment, g.dataset) = (in_environment, of_dataset) and not exists (
            select from varve.batch b where (b.dataset, b.partition, b.batch_id) = (of_dataset, of_partition, of_batch)
                and b.generation = g.generation))
$$;

-- Joined, and not asked of the function: there may be a hundred thousand rows.
create or replace view varve.environment_current as
    select o.environment, o.dataset, o.partition, o.batch_id from varve.overlay o
    where o.batch_id is not null and varve.of_generation(o.environment, o.dataset, o.partition, o.batch_id)
    union all
    select e.name, b.dataset, b.partition, b.batch_id
    from varve.environment e cross join lateral (
        select distinct on (p.dataset, p.partition) p.dataset, p.partition, p.batch_id from varve.publication p
        where p.id <= e.base order by p.dataset, p.partition, p.id desc
    ) b
    left join varve.environment_generation g on (g.environment, g.dataset) = (e.name, b.dataset)
    where e.base is not null and b.batch_id is not null and not exists (
        select from varve.overlay o where (o.environment, o.dataset, o.partition) = (e.name, b.dataset, b.partition)
            and (o.batch_id is null or varve.of_generation(o.environment, o.dataset, o.partition, o.batch_id)))
        and (g.generation is null or g.generation = (
            select x.generation from varve.batch x
            where (x.dataset, x.partition, x.batch_id) = (b.dataset, b.partition, b.batch_id)))
    union all
    select e.name, c.dataset, c.partition, c.batch_id
    from varve.environment e cross join varve.current c
    left join varve.environment_generation g on (g.environment, g.dataset) = (e.name, c.dataset)
    where e.base is null and not exists (
        select from varve.overlay o where (o.environment, o.dataset, o.partition) = (e.name, c.dataset, c.partition))
        and (g.generation is null or g.generation = (
            select x.generation from varve.batch x
            where (x.dataset, x.partition, x.batch_id) = (c.dataset, c.partition, c.batch_id)));

-- Version 12: hashes of the columns that readers read (docs/planning.md).

-- For each set of columns that some reader reads, a hash of the rows as that reader gets them; see column_set.
alter table varve.batch add column digests jsonb;

-- Version 12: Iceberg (docs/iceberg.md). Every table of the lake is also an Iceberg table: the pointer at its metadata moves
-- in the transaction that moves varve.current.

create table varve.iceberg_table (
    dataset text not null,
    -- Null: what is current. Else what the environment has in place of it; it ends with the environment.
    environment text references varve.environment on delete cascade,
    namespace text not null,
    table_name text not null,
    -- Null: it is not shown, for the reason in `hidden_because`.
    metadata_location text,
    previous_metadata_location text,
    hidden_because text not null default '',
    -- What Varve has written last. Where the pointer differs from it, somebody else has moved it.
    written_location text
);
create unique index iceberg_table_of on varve.iceberg_table (dataset, coalesce(environment, ''));

-- Which metadata each publish has made: with `as of` a reader opens the one of that time, also after its snapshot left the
-- metadata of today.
create table varve.iceberg_snapshot (
    dataset text not null,
    environment text references varve.environment on delete cascade,
    snapshot_id bigint not null,
    -- Null: of no publish (a repair, a tag).
    build_id bigint,
    metadata_location text not null,
    at timestamptz not null,
    primary key (dataset, snapshot_id)
);
create index iceberg_snapshot_of_build on varve.iceberg_snapshot (dataset, build_id);

-- What engines read, by the names that the JDBC catalog of Iceberg gives its tables. An environment shows what is its own,
-- and for all other tables what was current at its base, or is now where it has none.
-- It may be there: who lost the catalog has dropped the schema varve, and with it these views.
create schema if not exists varve_iceberg;

create view varve_iceberg.iceberg_tables as
    select 'varve'::varchar(255) as catalog_name, t.namespace::varchar(255) as table_namespace,
        t.table_name::varchar(255) as table_name, t.metadata_location::varchar(1000) as metadata_location,
        t.previous_metadata_location::varchar(1000) as previous_metadata_location, 'TABLE'::varchar(5) as iceberg_type
    from varve.iceberg_table t where t.metadata_location is not null
    union all
    select 'varve', t.namespace || '__' || e.name, t.table_name,
        case when e.base is null then t.metadata_location else s.metadata_location end, null, 'TABLE'
    from varve.environment e cross join varve.iceberg_table t
    left join lateral (
        select s.metadata_location from varve.iceberg_snapshot s join varve.publish p using (dataset, build_id)
        where s.dataset = t.dataset and s.environment is null and p.id <= e.base order by p.id desc limit 1
    ) s on e.base is not null
    where t.environment is null and t.metadata_location is not null
        and case when e.base is null then t.metadata_location else s.metadata_location end is not null
        and not exists (
            select from varve.iceberg_table o where o.dataset = t.dataset and o.environment = e.name
        );

create view varve_iceberg.iceberg_namespace_properties as
    select distinct 'varve'::varchar(255) as catalog_name, table_namespace as namespace, 'exists'::varchar(255) as property_key,
        'true'::varchar(1000) as property_value
    from varve_iceberg.iceberg_tables;

do $$ begin
    if exists (select from pg_catalog.pg_roles where rolname = 'varve_iceberg') then
        grant usage on schema varve_iceberg to varve_iceberg;
        grant select on varve_iceberg.iceberg_tables, varve_iceberg.iceberg_namespace_properties to varve_iceberg;
    end if;
end $$;
