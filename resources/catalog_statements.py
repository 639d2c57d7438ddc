"""The SQL of the catalog, a constant for each statement; catalog.py executes them, catalog.sql made their tables."""

from __future__ import annotations

# Not to_regclass: after waiting for the lock it still answers from what this session had cached before.
HAS_SCHEMA = "select from pg_catalog.pg_tables where schemaname = 'varve' and tablename = 'schema_version'"
LOCK_SCHEMA = "select pg_advisory_xact_lock(hashtextextended('varve schema', 0))"
REGISTER = """
    insert into varve.dataset (dataset, store, declaration) values (%s, %s, %s)
    on conflict (dataset) do update set store = excluded.store, declaration = excluded.declaration, updated_at = now()
    where (varve.dataset.store, varve.dataset.declaration) is distinct from (excluded.store, excluded.declaration)
"""
# A clock that stands still or goes back must not give an id twice, nor a smaller one.
NEXT_BATCH_ID = """
    update varve.clock
    set last_batch_id = greatest(last_batch_id + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
    returning last_batch_id
"""
LOCK = """
    select partition, pg_try_advisory_lock(hashtextextended(%s || '/' || partition, 0))
    from unnest(%s::text[]) as partition
"""
UNLOCK = "select pg_advisory_unlock(hashtextextended(%s || '/' || partition, 0)) from unnest(%s::text[]) as partition"
HOLDERS = """
    select distinct on (partition) partition, run_id, started_at from varve.batch
    where dataset = %s and partition = any(%s) and state in ('building', 'staged') order by partition, batch_id desc
"""
# We hold the locks: whoever was building these partitions is dead.
BURY = """
    update varve.batch set state = 'failed', failure = 'the run ended without a word: killed, or cut off'
    where dataset = %s and partition = any(%s) and state in ('building', 'staged')
"""
BEGIN = """
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version)
    select %s, partition, %s, 'building', %s, %s from unnest(%s::text[]) as partition
"""
EXPECTED = "select partition, batch_id from varve.current where dataset = %s and partition = any(%s)"
STAGED = """
    update varve.batch b
    set state = 'staged', staged_at = clock_timestamp(), location = s.location, rows = s.rows, bytes = s.bytes,
        files = s.files, inputs = s.inputs::jsonb
    from unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::int[], %s::text[])
        as s (partition, location, rows, bytes, files, inputs)
    where b.dataset = %s and b.batch_id = %s and b.partition = s.partition and b.state = 'building'
"""
LOCK_CURRENT = """
    select partition, batch_id from varve.current where dataset = %s and partition = any(%s)
    order by partition for update
"""
RETIRE = """
    update varve.batch b set state = 'retired', retired_at = clock_timestamp() from varve.current c
    where c.dataset = %s and c.partition = any(%s)
      and (b.dataset, b.partition, b.batch_id) = (c.dataset, c.partition, c.batch_id)
"""
POINT = """
    insert into varve.current (dataset, partition, batch_id)
    select %s, partition, %s from unnest(%s::text[]) as partition
    on conflict (dataset, partition) do update set batch_id = excluded.batch_id
"""
PUBLISHED = """
    update varve.batch set state = 'published', published_at = clock_timestamp()
    where dataset = %s and batch_id = %s and partition = any(%s) and state = 'staged'
"""
FAIL = """
    update varve.batch set state = 'failed', failure = %s
    where dataset = %s and batch_id = %s and state in ('building', 'staged')
"""
CURRENT = """
    select c.partition, c.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs
    from varve.current c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %s and (%s::text[] is null or c.partition = any(%s)) order by c.partition
"""
LAGGING = """
    select c.partition, c.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs
    from varve.current c join varve.batch b using (dataset, partition, batch_id)
    where c.dataset = %s and c.projected_batch_id is distinct from c.batch_id order by c.partition
"""
PROJECTED = """
    update varve.current c set projected_batch_id = p.batch_id
    from unnest(%s::text[], %s::bigint[]) as p (partition, batch_id)
    where c.dataset = %s and c.partition = p.partition
"""
EVER_PROJECTED = """
    select partition from varve.current
    where dataset = %s and partition = any(%s) and projected_batch_id is not null
"""
FORGET_PROJECTION = "update varve.current set projected_batch_id = null where dataset = %s"
LOCK_PROJECTION = "select pg_advisory_lock(hashtextextended('projection of ' || %s, 0))"
UNLOCK_PROJECTION = "select pg_advisory_unlock(hashtextextended('projection of ' || %s, 0))"
# Looks at the lock instead of trying it: a trial, however short, could make the run fail that begins just then.
IN_FLIGHT = """
    select distinct b.partition from varve.batch b
    join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted
        and l.database = (select oid from pg_database where datname = current_database())
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(b.dataset || '/' || b.partition, 0)
    where b.dataset = %s and b.state in ('building', 'staged')
"""
FAILURES = """
    select b.partition, count(*) from varve.batch b
    left join varve.current c using (dataset, partition)
    left join varve.arrival a using (dataset, partition)
    left join unnest(%s::text[], %s::timestamptz[]) as s (partition, at) on s.partition = b.partition
    where b.dataset = %s and b.state = 'failed' and b.batch_id > coalesce(c.batch_id, 0)
      and b.started_at > coalesce(greatest(a.arrived_at, s.at), '-infinity')
    group by b.partition
"""
ARRIVED = """
    insert into varve.arrival (dataset, partition, uri, bytes, fingerprint) values (%s, %s, %s, %s, %s)
    on conflict (dataset, partition) do update
    set uri = excluded.uri, bytes = excluded.bytes, fingerprint = excluded.fingerprint, arrived_at = now()
    where varve.arrival.fingerprint <> excluded.fingerprint
"""
ARRIVALS = "select partition, fingerprint from varve.arrival where dataset = %s"
COUNTS = """
    select d.dataset, d.store, count(c.partition), coalesce(sum(b.rows), 0)::bigint, coalesce(sum(b.bytes), 0)::bigint,
           (select count(*) from varve.batch x where x.dataset = d.dataset and x.state <> 'failed')
    from varve.dataset d
    left join varve.current c using (dataset) left join varve.batch b using (dataset, partition, batch_id)
    group by d.dataset, d.store order by d.dataset
"""
