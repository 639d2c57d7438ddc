-- Version 22, code from 18 on: an engine that opens one Iceberg table asks for that one (docs/iceberg.md).

-- As before, but both parts have columns of the same types: else PostgreSQL makes all rows, those of every table in every
-- environment, before it looks for the name that an engine asks for.
create or replace view varve_iceberg.iceberg_tables as
    select 'varve'::varchar(255) as catalog_name, t.namespace::varchar(255) as table_namespace,
        t.table_name::varchar(255) as table_name, t.metadata_location::varchar(1000) as metadata_location,
        t.previous_metadata_location::varchar(1000) as previous_metadata_location, 'TABLE'::varchar(5) as iceberg_type
    from varve.iceberg_table t where t.metadata_location is not null
    union all
    select 'varve'::varchar, (t.namespace || '__' || e.name)::varchar, t.table_name::varchar,
        (case when e.base is null then t.metadata_location else s.metadata_location end)::varchar, null::varchar,
        'TABLE'::varchar
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
