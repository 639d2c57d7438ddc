"""The SQL of the catalog, one constant for each statement. catalog.py executes them; schema.sql makes their tables."""

from __future__ import annotations

REGISTER = """
    insert into varve.dataset (dataset, store, declaration) values (%s, %s, %s)
    on conflict (dataset) do update set store = excluded.store, declaration = excluded.declaration, updated_at = now()
    where (varve.dataset.store, varve.dataset.declaration) is distinct from (excluded.store, excluded.declaration)
"""
REGISTER_FIRST = """
    insert into varve.dataset (dataset, store, declaration) values (%s, %s, %s) on conflict (dataset) do nothing
"""
DECLARED = """
    select declaration from varve.dataset d
    where dataset = %s and exists (select from varve.publish p where p.dataset = d.dataset)
"""
# The ids grow although the server's clock may stand still or go back.
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
    select distinct on (partition) partition, run_id, started_at from varve.batch b
    where dataset = %s and environment = %s and partition = any(%s) and (
        state in ('building', 'staged')
        or state = 'failed' and exists (select from varve.lease l where l.run_id = b.run_id and l.lost_at is not null)
    )
    order by partition, batch_id desc
"""
DEAD = """
    select b.dataset, b.partition, b.batch_id from varve.batch b
    left join varve.living l using (dataset, partition, batch_id)
    where b.state in ('building', 'staged') and l.batch_id is null order by b.dataset, b.partition
"""
TAKE_KILLED = """
    with taken as (
        delete from varve.killed where (dataset, partition, batch_id) in (
            select dataset, partition, batch_id from varve.killed where dataset = any(%s) for update skip locked)
        returning dataset, partition, batch_id
    )
    select b.dataset, b.batch_id, b.run_id, b.code_version, b.environment, array_agg(b.partition order by b.partition)
    from taken join varve.batch b using (dataset, partition, batch_id) where b.state = 'failed'
    group by b.dataset, b.batch_id, b.run_id, b.code_version, b.environment order by b.batch_id
"""
FORGET_KILLED = "delete from varve.killed where noted_at < clock_timestamp() - make_interval(days => %s)"
# The same statement notes the change for the planner: a trigger would run for every row of every publish.
_FAILED = """
    with failed as (
        update varve.batch b set state = 'failed', failed_at = clock_timestamp(), failure = %s
        where b.state in ('building', 'staged') and {which} returning b.dataset, b.partition, b.batch_id
    ){noted}
    insert into varve.change (dataset, partition) select dataset, partition from failed
"""
KILLED = "the run ended without a word: killed, or cut off"
_NOTED_AS_KILLED = """, killed as (
        insert into varve.killed (dataset, partition, batch_id) select dataset, partition, batch_id from failed
        on conflict do nothing
    )"""
FAIL_DEAD = _FAILED.format(
    which="""not exists (
        select from varve.living l where (l.dataset, l.partition, l.batch_id) = (b.dataset, b.partition, b.batch_id)
        )""",
    noted=_NOTED_AS_KILLED,
)
# The caller holds the locks of these partitions: whoever was building them is dead.
FAIL_LOCKED = _FAILED.format(
    which="b.dataset = %s and b.environment = %s and b.partition = any(%s)", noted=_NOTED_AS_KILLED
)
BEGIN = """
    insert into varve.batch (dataset, partition, batch_id, state, run_id, code_version, environment, generation)
    select %(dataset)s, partition, %(batch)s, 'building', %(run)s, %(code)s, %(environment)s, coalesce(
        (select generation from varve.environment_generation
            where (environment, dataset) = (%(environment)s, %(dataset)s)),
        (select generation from varve.dataset where dataset = %(dataset)s))
    from unnest(%(paths)s::text[]) as partition
"""
EXPECTED = "select partition, batch_id from varve.current where dataset = %s and partition = any(%b::text[])"
STAGED = """
    update varve.batch b
    set state = 'staged', staged_at = clock_timestamp(), location = s.location, rows = s.rows, bytes = s.bytes,
        files = s.files, inputs = s.inputs::jsonb, content = s.content, statistics = s.statistics::jsonb,
        digests = s.digests::jsonb
    from unnest(%s::text[], %s::text[], %s::bigint[], %s::bigint[], %s::int[], %s::text[], %s::text[], %s::text[],
        %s::text[]) as s (partition, location, rows, bytes, files, inputs, content, statistics, digests)
    where b.dataset = %s and b.batch_id = %s and b.partition = s.partition and b.state = 'building'
"""
LOCK_CURRENT = """
    select partition, batch_id from varve.current where dataset = %s and partition = any(%b::text[])
    order by partition for update
"""
# A publish has one time for all of its partitions, so that "as of" sees all of it or nothing.
INSTANT = "select clock_timestamp()"
# The targets of a rollback. The last column says whether a batch is of another generation than readers see afterwards.
TARGETS = """
    select b.partition, b.batch_id, b.state, b.swept_at,
        case when b.published_at is null then b.environment else '' end,
        b.generation <> coalesce(
            %(generation)s::bigint, (select generation from varve.dataset where dataset = %(dataset)s))
    from varve.batch b
    join unnest(%(partitions)b::text[], %(ids)b::bigint[]) as t (partition, batch_id) using (partition, batch_id)
    where b.dataset = %(dataset)s order by b.partition
"""
# Locked against the sweep, which skips what is locked.
LOCK_TARGETS = f"{TARGETS.rstrip()} for update of b"
# Lists instead of joins: where its statistics do not know a dataset yet, PostgreSQL joins every row with every other,
# and 10,000 partitions take a minute. Where the batch ids differ, the last list has the pairs of id and partition.
RETIRE = """
    update varve.batch b set state = 'retired', retired_at = %s
    where b.dataset = %s and b.partition = any(%b::text[]) and b.batch_id = any(%b::bigint[])
      and (%s::text[] is null or b.batch_id || '/' || b.partition = any(%s))
"""
# To update the existing rows and insert the others would be a quarter faster; but with old statistics PostgreSQL joins
# every row with every other, and a thousand partitions take a second.
POINT = """
    insert into varve.current (dataset, partition, batch_id)
    select %s, t.partition, t.batch_id from unnest(%b::text[], %b::bigint[]) as t (partition, batch_id)
    on conflict (dataset, partition) do update set batch_id = excluded.batch_id
"""
PUBLISHED = """
    update varve.batch b set state = 'published', published_at = %s, retired_at = null
    where b.dataset = %s and b.partition = any(%b::text[]) and b.batch_id = any(%b::bigint[])
      and (%s::text[] is null or b.batch_id || '/' || b.partition = any(%s)) and b.state = any(%s)
"""
RECORD = """
    with publish as (
        insert into varve.publish (dataset, build_id, kind, run_id, reason, published_at)
        values (%s, %s, %s, %s, %s, %s) returning dataset, build_id
    )
    insert into varve.published (dataset, partition, build_id, batch_id)
    select p.dataset, t.partition, p.build_id, t.batch_id
    from publish p cross join unnest(%b::text[], %b::bigint[]) as t (partition, batch_id)
"""
UNRECORDED = """
    select p.build_id, p.kind, p.run_id, p.reason, p.published_at, json_object_agg(c.partition, c.batch_id)
    from varve.publish p join varve.published c using (dataset, build_id)
    where p.dataset = %s and not p.recorded group by p.dataset, p.build_id order by p.id
"""
RECORDED = "update varve.publish set recorded = true where dataset = %s and build_id = any(%s) and not recorded"
WAS_PUBLISHED = "select from varve.publish where dataset = %s and build_id = %s"
WITHDRAW = """
    with gone as (
        delete from varve.current where dataset = %s and partition = any(%b::text[]) returning dataset, partition
    )
    insert into varve.withdrawn (dataset, partition) select dataset, partition from gone on conflict do nothing
"""
FAIL = _FAILED.format(which="b.dataset = %s and b.batch_id = %s", noted="")
NOTE_BROKEN = "update varve.batch set broken = %s where dataset = %s and batch_id = %s and state = 'failed'"
NOTE_OUTAGE = "update varve.batch set outage = true where dataset = %s and batch_id = %s and state = 'failed'"
NOTE_REASONS = """
    update varve.batch b set failure = own.reason from unnest(%s::text[], %s::text[]) as own (partition, reason)
    where b.dataset = %s and b.batch_id = %s and b.partition = own.partition and b.state = 'failed'
"""
FORGET_OTHERS = """
    with forgotten as (
        delete from varve.batch b
        where b.dataset = %s and b.batch_id = %s and not b.partition = any(%s) and b.state in ('building', 'staged')
        returning b.dataset, b.partition
    )
    insert into varve.change (dataset, partition) select dataset, partition from forgotten
"""
# Each batch is looked up by its key and not joined, for the same reason as in RETIRE.
CURRENT = """
    select c.partition, c.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs, b.content
    from varve.current c cross join lateral (
        select * from varve.batch x
        where (x.dataset, x.partition, x.batch_id) = (c.dataset, c.partition, c.batch_id) offset 0
    ) b
    where c.dataset = %s and (%s::text[] is null or c.partition = any(%s)) order by c.partition
"""
SHOWN = CURRENT.replace("b.inputs", "'[]'::jsonb")
LAGGING = """
    select c.partition, c.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs, b.content
    from varve.current c cross join lateral (
        select * from varve.batch x
        where (x.dataset, x.partition, x.batch_id) = (c.dataset, c.partition, c.batch_id) offset 0
    ) b
    where c.dataset = %s and c.projected_batch_id is distinct from c.batch_id order by c.partition
"""
# A partition that was withdrawn has no time of that; its dataset's last publish was not before it.
ALL_LAGGING = """
    with lagging as (
        select c.dataset, c.batch_id from varve.current c where c.projected_batch_id is distinct from c.batch_id
        union all
        select w.dataset, 0 from varve.withdrawn w left join varve.current c using (dataset, partition)
        where c.batch_id is null
    )
    select l.dataset, count(*), max(l.batch_id) from lagging l group by l.dataset
    having (select max(p.published_at) from varve.publish p where p.dataset = l.dataset)
        < clock_timestamp() - %s * interval '1 second'
    order by 1
"""
PROJECTED = """
    update varve.current c set projected_batch_id = p.batch_id
    from unnest(%s::text[], %s::bigint[]) as p (partition, batch_id)
    where c.dataset = %s and c.partition = p.partition and c.projected_batch_id is distinct from p.batch_id
"""
# No batch has such an id: what the projection shows is not known until a change of it has been recorded.
PROJECTING = """
    with moved as (
        select partition from varve.current where dataset = %s and partition = any(%s) order by 1 for no key update
    )
    update varve.current c set projected_batch_id = case when c.projected_batch_id >= 0 then 0 else -1 end
    from moved where c.dataset = %s and c.partition = moved.partition
"""
EVER_PROJECTED = """
    select partition from varve.current where dataset = %s and partition = any(%s) and projected_batch_id >= 0
"""
HOLD = """
    insert into varve.hold (dataset, partition, since) select %s, partition, %s from unnest(%s::text[]) as partition
    on conflict (dataset, partition) do update set since = excluded.since
"""
LET_GO = "delete from varve.hold where dataset = %s and partition = any(%b::text[])"
WITHDRAWN = """
    select w.partition from varve.withdrawn w left join varve.current c using (dataset, partition)
    where w.dataset = %s and c.batch_id is null order by w.partition
"""
SHOWN_COLUMNS = "select shown_declaration from varve.dataset where dataset = %s"
SET_SHOWN_COLUMNS = "update varve.dataset set shown_declaration = %s where dataset = %s"
FORGET_WITHDRAWN = "delete from varve.withdrawn where dataset = %s and partition = any(%s)"
FORGET_SHOWN = """
    update varve.current set projected_batch_id = null where dataset = %s and partition = any(%s)
"""
SHOWN_WITHOUT = """
    insert into varve.withdrawn (dataset, partition) select %s, partition from unnest(%s::text[]) as partition
    on conflict do nothing
"""
UNKNOWN = """
    select id from unnest(%(ids)s::bigint[]) as id
    where not exists (select from varve.batch where dataset = %(dataset)s and batch_id = id)
"""
FORGET_PROJECTION = "update varve.current set projected_batch_id = null where dataset = %s"
LOCK_PROJECTION = "select pg_advisory_lock(hashtextextended('projection of ' || %s, 0))"
UNLOCK_PROJECTION = "select pg_advisory_unlock(hashtextextended('projection of ' || %s, 0))"
IN_FLIGHT = "select distinct partition from varve.living where dataset = %s and environment = %s"
# A partition that a person rolled back counts as failed for good: the same inputs would give the same batch again.
FAILURES = """
    select f.partition, sum(f.times)::bigint from (
        select b.partition, 1 as times, b.started_at as at from varve.batch b
        left join varve.current c using (dataset, partition)
        where b.dataset = %s and b.state = 'failed' and b.environment = ''
            and b.batch_id > coalesce(c.batch_id, 0)
        union all
        select h.partition, %s, h.since from varve.hold h where h.dataset = %s
    ) f
    left join varve.arrival a on a.dataset = %s and a.partition = f.partition
    left join unnest(%s::text[], %s::timestamptz[]) as s (partition, at) on s.partition = f.partition
    where f.at > coalesce(greatest(a.arrived_at, s.at), '-infinity')
    group by f.partition
"""
# Returns whether the content differs from before; `arrived_at` is the time since when it is what it is.
ARRIVED = """
    with before as (select fingerprint from varve.arrival where dataset = %(dataset)s and partition = %(partition)s)
    insert into varve.arrival as a (dataset, partition, uri, bytes, fingerprint, stamp)
        values (%(dataset)s, %(partition)s, %(uri)s, %(bytes)s, %(fingerprint)s, %(stamp)s)
    on conflict (dataset, partition) do update
    set uri = excluded.uri, bytes = excluded.bytes, fingerprint = excluded.fingerprint, stamp = excluded.stamp,
        arrived_at = case when a.fingerprint = excluded.fingerprint then a.arrived_at else now() end
    where (a.uri, a.fingerprint, a.stamp) is distinct from (excluded.uri, excluded.fingerprint, excluded.stamp)
    returning not exists (select from before where fingerprint = a.fingerprint)
"""
DEPARTED = "delete from varve.arrival where dataset = %s and partition = any(%s)"
# Only files from which no current batch was made; the others stay, with their batches.
DEPARTED_UNUSED = """
    delete from varve.arrival a where dataset = %s and partition = any(%s) and not exists (
        select from varve.current c join varve.batch b using (dataset, partition, batch_id)
        where c.dataset = a.dataset and c.partition = a.partition
            and b.inputs::jsonb @> jsonb_build_array(jsonb_build_array(%s::text, a.partition, a.fingerprint)))
"""
ARRIVED_FILES = "select partition, uri, stamp from varve.arrival where dataset = %s"
ARRIVALS = "select partition, fingerprint from varve.arrival where dataset = %s"
# Each number from an index of its own: a batch is current as long as its state is `published`.
COUNTS = """
    select d.dataset, d.store, coalesce(p.partitions, 0), coalesce(p.rows, 0), coalesce(p.bytes, 0),
        coalesce(p.partitions, 0) + coalesce(r.batches, 0)
            + (select count(*) from varve.batch x where x.dataset = d.dataset and x.state in ('building', 'staged'))
    from varve.dataset d
    left join (
        select dataset, count(*) as partitions, sum(rows)::bigint as rows, sum(bytes)::bigint as bytes
        from varve.batch where state = 'published' group by dataset
    ) p using (dataset)
    left join (select dataset, count(*) as batches from varve.batch where state = 'retired' group by dataset) r
        using (dataset)
    where strpos(d.dataset, '#') = 0 order by d.dataset
"""
ALL_DECLARED = """
    select dataset, store, declaration from varve.dataset d
    where exists (select from varve.current c where c.dataset = d.dataset) order by dataset
"""
PARTITIONS_BY_DATASET = "select dataset, count(*) from varve.current group by dataset"
# After many new partitions. PostgreSQL does this by itself some time later; until then its plans are bad.
ANALYZE = "analyze varve.batch, varve.current, varve.published"
