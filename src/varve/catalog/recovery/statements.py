"""The SQL of the recovery, one constant for each statement. None overwrites what the catalog still holds."""

from __future__ import annotations

CURRENT_PATHS = """
    select partition from varve.current where dataset = %s
"""
DATASET = """
    insert into varve.dataset (dataset, store, declaration) values (%s, %s, %s) on conflict (dataset) do nothing
"""
BATCH = """
    insert into varve.batch (
        dataset, partition, batch_id, state, run_id, code_version, location, rows, bytes, files, inputs, failure,
        started_at, published_at, content, statistics, staged_at, retired_at
    )
    select v.*, case when v.state = 'retired' then clock_timestamp() end from (
        select %s::text, %s::text, %s::bigint, %s::text as state, %s::text, %s::text, %s::text, %s::bigint, %s::bigint,
            %s::int, %s::jsonb, %s::text, %s::timestamptz as started, %s::timestamptz, %s::text, %s::jsonb,
            clock_timestamp()
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
CLOCK = "update varve.clock set last_batch_id = greatest(last_batch_id, %s)"
