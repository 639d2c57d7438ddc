-- Version 18, code from 17 on: what an environment's readers of Iceberg are shown (docs/iceberg.md).

-- The last publish of a dataset at or before a base.
create index publish_of_dataset on varve.publish (dataset, id);

-- As before, but for two things. Publishes while a table was off or hidden have no snapshot: an environment with such a base
-- was shown the snapshot of an earlier publish, and is shown none. And what an environment has computed without an Iceberg
-- table of its own is not in the one of its base, which is not shown in place of it.
create or replace view varve_iceberg.iceberg_tables as
    select 'varve'::varchar(255) as catalog_name, t.namespace::varchar(255) as table_namespace,
        t.table_name::varchar(255) as table_name, t.metadata_location::varchar(1000) as metadata_location,
        t.previous_metadata_location::varchar(1000) as previous_metadata_location, 'TABLE'::varchar(5) as iceberg_type
    from varve.iceberg_table t where t.metadata_location is not null
    union all
    select 'varve', t.namespace || '__' || e.name, t.table_name,
        case when e.base is null then t.metadata_location else s.metadata_location end, null, 'TABLE'
    from varve.environment e cross join varve.iceberg_table t
    left join lateral (
        select i.metadata_location from (
            select p.build_id from varve.publish p where p.dataset = t.dataset and p.id <= e.base order by p.id desc limit 1
        ) l join varve.iceberg_snapshot i
            on (i.dataset, i.build_id) = (t.dataset, l.build_id) and i.environment is null
    ) s on e.base is not null
    where t.environment is null and t.metadata_location is not null
        and case when e.base is null then t.metadata_location else s.metadata_location end is not null
        and not exists (
            select from varve.iceberg_table o where o.dataset = t.dataset and o.environment = e.name
        )
        and not exists (
            select from varve.overlay o where (o.environment, o.dataset) = (e.name, t.dataset)
        );
