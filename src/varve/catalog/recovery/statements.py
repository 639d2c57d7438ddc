"""The SQL of the recovery, one constant for each statement.

None overwrites what the catalog still holds, but for the rows of batches that were published and do not say so.
"""

from __future__ import annotations

CURRENT_PATHS = """
    select partition from varve.current where dataset = %s
"""
DATASET = """
    insert into varve.dataset as d (dataset, store, declaration) values (%s, %s, %s)
    on conflict (dataset) do update set store = excluded.store, declaration = excluded.declaration where %s
"""
# When it was staged no store records: what it has taken is not known any more, and counts for no cost.
BATCH = """
    insert into varve.batch (
        dataset, partition, batch_id, state, run_id, code_version, location, rows, bytes, files, inputs, failure,
        started_at, published_at, content, statistics, retired_at
    )
    select v.*, case when v.state = 'retired' then clock_timestamp() end from (
        select %s::text, %s::text, %s::bigint, %s::text as state, %s::text, %s::text, %s::text, %s::bigint, %s::bigint,
            %s::int, %s::jsonb, %s::text, %s::timestamptz as started, %s::timestamptz, %s::text, %s::jsonb
    ) v
    on conflict (dataset, partition, batch_id) do nothing
"""
PUBLISH = """
    insert into varve.publish (dataset, build_id, kind, run_id, reason, published_at, recorded)
    values (%s, %s, %s, %s, %s, %s, true) on conflict do nothing
"""
PUBLISHED = """
    insert into varve.published (dataset, build_id, partition, batch_id)
    select %s, %s, t.partition, t.batch_id from unnest(%s::text[], %s::bigint[]) as t (partition, batch_id)
    on conflict do nothing
"""
CURRENT = """
    insert into varve.current (dataset, partition, batch_id)
    select %s, t.partition, t.batch_id from unnest(%s::text[], %s::bigint[]) as t (partition, batch_id)
    on conflict (dataset, partition) do nothing
"""
# A dump of a moment when they were computed has them as building: they would be declared dead, and their data swept.
# The last column says whether the batch is current; others may have been replaced since.
NOT_AS_PUBLISHED = """
    select b.partition, b.batch_id, true
    from varve.current c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %(dataset)s and b.state <> 'published'
    union all
    select b.partition, b.batch_id, false from varve.batch b
    where b.dataset = %(dataset)s and b.state in ('building', 'staged', 'failed')
      and not exists (select from varve.current c
        where (c.dataset, c.partition, c.batch_id) = (b.dataset, b.partition, b.batch_id))
    order by 1, 2
"""
AS_PUBLISHED = """
    update varve.batch set state = case when %s then 'published' else 'retired' end, run_id = %s, code_version = %s,
        location = %s, rows = %s, bytes = %s, files = %s, inputs = %s::jsonb, content = %s, statistics = %s::jsonb,
        published_at = coalesce(%s::timestamptz, published_at, clock_timestamp()),
        retired_at = case when %s then null else clock_timestamp() end, failure = null, failed_at = null, broken = null,
        swept_at = null, deleted_at = null
    where dataset = %s and partition = %s and batch_id = %s
"""
CLOCK = "update varve.clock set last_batch_id = greatest(last_batch_id, %s)"
