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
