"""The SQL of planning, one constant for each statement; facts.py and backfills.py execute them."""

from __future__ import annotations

# Which code made a batch, as a number of `MadeBy`: `d` is the deployment of its dataset, `b` the batch.
_MADE_BY = """
    case when d.code_version is null or b.code_version in ('', d.code_version) then 0
        when exists (select from varve.accepted_code a where (a.dataset, a.partition, a.batch_id, a.deployment)
            = (b.dataset, b.partition, b.batch_id, d.deployment)) then 2
        else 1 end
"""
# Of batches with the same rows also when they became current, and were no more, in microseconds since 1970.
CURRENT = """
    select c.partition, c.batch_id, extract(epoch from b.published_at)::float8, b.inputs,
        case when b.content is null then null else (
            select array_agg(array[e.batch_id, (extract(epoch from e.published_at) * 1000000)::bigint,
                (extract(epoch from e.retired_at) * 1000000)::bigint]) from varve.batch e
            where e.dataset = b.dataset and e.partition = b.partition and e.content = b.content
              and e.batch_id <> b.batch_id) end,
        case when b.digests is null then null else (
            select jsonb_object_agg(same.columns, same.ids) from (
                select d.key as columns, jsonb_agg(e.batch_id) as ids from jsonb_each_text(b.digests) d
                join varve.batch e on e.dataset = b.dataset and e.partition = b.partition
                  and e.batch_id <> b.batch_id and e.digests ->> d.key = d.value
                group by d.key) same) end,
"""
CURRENT += (
    _MADE_BY
    + """
    from varve.current c join varve.batch b using (dataset, partition, batch_id)
    left join varve.deployed d on d.dataset = c.dataset where c.dataset = %s
"""
)
# A statement of its own: with "or", a prepared statement would read the whole dataset for one partition.
CURRENT_OF = CURRENT + " and c.partition = any(%s)"
ARRIVALS = """
    select partition, fingerprint, extract(epoch from arrived_at)::float8 from varve.arrival
    where dataset = %s and (%s::text[] is null or partition = any(%s))
"""
MARKS = """
    select d.partition, d.number, b.reason, b.id, b.state = 'paused' from varve.dirty d
    join varve.backfill b on b.id = d.backfill
    where d.dataset = %s and (%s::text[] is null or d.partition = any(%s)) order by d.number
"""
# The last few failures since the current batch began, and the last few outages: those count for nothing, and must not
# hide the ones that do. They ended by the clock of whoever asks, which may differ by seconds from the server's: it is
# that process which waits until it is time to try again.
FAILURES = """
    select partition, batch_id, began, ended, outage from (
        select f.partition, f.outage, extract(epoch from f.started_at)::float8 as began,
            (extract(epoch from coalesce(f.failed_at, f.started_at))
             + round(%s::numeric - extract(epoch from clock_timestamp())))::float8 as ended,
            row_number() over (partition by f.partition, f.outage order by f.batch_id desc) as age, f.batch_id
        from varve.batch f left join varve.current c on (c.dataset, c.partition) = (f.dataset, f.partition)
        where f.dataset = %s and f.state = 'failed' and f.environment = '' and f.batch_id > coalesce(c.batch_id, 0)
          and (%s::text[] is null or f.partition = any(%s))
    ) failures where age <= %s order by partition, batch_id
"""
# How many partitions of each of these builds have failed; asked once of all, and not of each failure.
FAILED_TOGETHER = """
    select batch_id, count(*) from varve.batch
    where dataset = %s and state = 'failed' and batch_id = any(%s) group by batch_id
"""
ON_HOLD = """
    select partition, extract(epoch from since)::float8 from varve.hold
    where dataset = %s and (%s::text[] is null or partition = any(%s))
"""
ACCEPTED = """
    select partition, source, source_partition, version, concat_ws(': ', accepted_by, nullif(reason, ''))
    from varve.acceptance where dataset = %s and (%s::text[] is null or partition = any(%s)) order by accepted_at
"""
EXISTING = "select partition from varve.current where dataset = %s"
# A row for each dataset: rows of partitions take twice as long to read.
EXISTING_TOGETHER = "select dataset, array_agg(partition) from varve.current where dataset = any(%s) group by dataset"
# The partitions with a fact that does not come from their current batch.
NOTED = """
    select dataset, partition from varve.dirty where dataset = any(%(datasets)s)
    union all select dataset, partition from varve.hold where dataset = any(%(datasets)s)
    union all select f.dataset, f.partition from varve.batch f
        left join varve.current c on (c.dataset, c.partition) = (f.dataset, f.partition)
        where f.dataset = any(%(datasets)s) and f.state = 'failed' and f.environment = ''
            and f.batch_id > coalesce(c.batch_id, 0)
    union all select a.dataset, a.partition from varve.arrival a
        where a.dataset = any(%(datasets)s) and not exists (
            select from varve.current c where (c.dataset, c.partition) = (a.dataset, a.partition))
"""
# A trace is stored in the order of sources and partitions: a source that is read at the same path has a fixed place.
OTHER_VERSIONS = """
    select c.partition from varve.current c join varve.batch b using (dataset, partition, batch_id) {joins}
    left join varve.deployed d on d.dataset = c.dataset
    where c.dataset = {dataset} and (jsonb_array_length(b.inputs) = {count} {comparisons} and
"""
OTHER_VERSIONS += _MADE_BY + " <> 1) is not true"
AT_THE_SAME_PATH = """
    left join varve.{table} {edge} on {edge}.dataset = {source} and {edge}.partition = c.partition
"""
SAME_VERSION = """
    and b.inputs -> {place} ->> 0 = {name} and b.inputs -> {place} ->> 1 = c.partition
    and b.inputs -> {place} ->> 2 = {edge}.{version}::text
"""
# The same of many datasets with as many sources. Without "offset" PostgreSQL would join all of their batches at once,
# for which it may read all batches there are.
OTHER_VERSIONS_TOGETHER = """
    select asked.dataset, other.partition from unnest({lists}) as asked ({columns})
    cross join lateral ({other_versions} offset 0) other
"""
# Where many partitions are read, Python compares traces as text: to build them in PostgreSQL takes four times as long.
TRACES = """
    select c.partition, b.inputs::text,
"""
TRACES += (
    _MADE_BY
    + """
    from varve.current c join varve.batch b using (dataset, partition, batch_id)
    left join varve.deployed d on d.dataset = c.dataset where c.dataset = %s
"""
)
READ_NOW = """
    select partition, jsonb_build_array({name}::text, partition, {version}::text)::text from varve.{table}
    where dataset = {source}
"""
LIVING = "select distinct dataset, partition, run_id from varve.living where environment = %s"
# Changes by transactions that the last look may not have seen: those at or after its horizon. Some are read twice.
CHANGES = "select distinct dataset, partition from varve.change where xid >= %s::text::xid8"
# The server and the table of changes, told by what needs no rights: they are others after a restart, or a restore.
HORIZON = """
    select pg_snapshot_xmin(pg_current_snapshot())::text,
        concat_ws(' ', extract(epoch from pg_postmaster_start_time()), 'varve.change'::regclass::oid)
"""
FORGET_CHANGES = "delete from varve.change where at < clock_timestamp() - %s::interval"

NEXT_NUMBER = """
    update varve.clock
    set last_batch_id = greatest(last_batch_id + 1, (extract(epoch from clock_timestamp()) * 1000)::bigint)
    returning last_batch_id
"""
ADD_BACKFILL = "insert into varve.backfill (reason, owner, marked) values (%s, %s, %s) returning id"
MARK = """
    insert into varve.dirty (dataset, partition, backfill, number)
    select %s, partition, %s, %s from unnest(%s::text[]) as partition
"""
BACKFILLS = """
    select b.id, b.reason, b.owner, b.state, b.marked, b.created_at, b.undone || (
        select coalesce(jsonb_object_agg(dataset, count), '{}') from (
            select dataset, count(*) as count from varve.dirty d where d.backfill = b.id group by dataset) l)
    from varve.backfill b where %s::bigint is null or b.id = %s order by b.id desc
"""
# Who pauses, resumes or cancels it meanwhile waits, and then looks at what it has become.
LOCK_BACKFILL = "select from varve.backfill where id = %s for update"
SET_STATE = "update varve.backfill set state = %s where id = %s"
# Notes a change of every mark, so that the planner judges its partition again: it was paused or resumed.
TOUCH = "update varve.dirty set number = number where backfill = %s"
KEEP_UNDONE = """
    update varve.backfill b set undone = (
        select coalesce(jsonb_object_agg(dataset, count), '{}') from (
            select dataset, count(*) as count from varve.dirty d where d.backfill = b.id group by dataset) l)
    where b.id = %s
"""
UNMARK = "delete from varve.dirty where backfill = %s"
UNMARK_PARTITIONS = "delete from varve.dirty where dataset = %s and partition = any(%s)"
# By dataset: how many of its last builds count, and their medians: seconds from begin to staged, partitions, and rows
# and bytes of a partition.
COSTS = """
    select dataset, count(*)::int, percentile_cont(0.5) within group (order by seconds),
        percentile_cont(0.5) within group (order by partitions::float8),
        percentile_cont(0.5) within group (order by rows), percentile_cont(0.5) within group (order by bytes)
    from (
        select dataset, count(*) as partitions, avg(rows)::float8 as rows, avg(bytes)::float8 as bytes,
            extract(epoch from max(staged_at) - min(started_at))::float8 as seconds,
            row_number() over (partition by dataset order by batch_id desc) as age
        from varve.batch where staged_at is not null and dataset = any(%s)
        group by dataset, batch_id
    ) builds where age <= %s group by dataset
"""
