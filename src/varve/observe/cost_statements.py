"""What one line of the costs is about, and their SQL, one constant for each statement; costs.py executes them."""

from __future__ import annotations

from enum import StrEnum


class CostsBy(StrEnum):
    """What one line of the costs is about."""

    DATASET = "dataset"
    RUN = "run"
    MONTH = "month"


# Until the end of the transaction. With PostgreSQL's 4 MB, four million inputs are sorted on disk.
MORE_MEMORY = "set local work_mem = '128MB'"
# A dataset of this name, and those that were dropped under it, as long as the catalog has batches of them.
NAMES = """array(
    select d.dataset from varve.dataset d
    where d.dataset = %(dataset)s::text or starts_with(d.dataset, %(dataset)s::text || '#')
)"""
# A build is one dataset in one run: its partitions are computed by one job, so that its seconds count once. Of a
# partition that grows a run has written, and read, only its own part. Bytes that several partitions of a build read are
# counted once: the job reads them once. Landing files count with the size that was recorded when they were taken.
BUILDS = """
    with own as (
        select b.*, to_char(b.started_at at time zone 'UTC', 'YYYY-MM') as month
        from varve.batch b
        where (%(dataset)s::text is null or b.dataset = any({names}))
            and (%(since)s::timestamptz is null or b.started_at >= %(since)s)
    ), builds as (
        select dataset, batch_id, min(run_id) as run_id, min(month) as month, min(environment) as environment,
            min(started_at) as began, count(*) as partitions, bool_or(state = 'failed') as failed,
            coalesce(greatest(extract(epoch from max(coalesce(staged_at, failed_at)) - min(started_at)), 0), 0)
                as seconds,
            coalesce(sum(coalesce(own_rows, rows)), 0) as rows, coalesce(sum(coalesce(own_bytes, bytes)), 0) as written
        from own group by dataset, batch_id
    ), reads as (
        -- A batch id is a number, the fingerprint of a file is none; CASE keeps the cast away from fingerprints.
        select o.dataset, o.batch_id, i ->> 0 as source, i ->> 1 as partition, i ->> 2 as version,
            case when i ->> 2 ~ '^[0-9]+$' and length(i ->> 2) < 19 then (i ->> 2)::bigint end as number,
            -- Of the files of a partition that grows, the run has read those that are new.
            max(case when i ->> 1 = o.partition and strpos(i ->> 0, ':') > 0 then o.own_read end) as own_read
        from own o cross join lateral jsonb_array_elements(o.inputs) i
        group by o.dataset, o.batch_id, i ->> 0, i ->> 1, i ->> 2
    ), read as (
        select r.dataset, r.batch_id, sum(coalesce(b.bytes, r.own_read, a.bytes)) as bytes
        from reads r
        left join {batches_read}
        left join varve.arrival a on b.batch_id is null and a.dataset = r.dataset and a.partition = r.partition
            and a.fingerprint = r.version
        group by r.dataset, r.batch_id
    )
    select {key}, count(distinct b.run_id)::int as runs, count(*) filter (where b.failed)::int as failed,
        sum(b.partitions)::bigint, sum(b.seconds)::float8, sum(b.rows)::bigint, coalesce(sum(r.bytes), 0)::bigint,
        sum(b.written)::bigint
    from builds b left join read r using (dataset, batch_id)
    group by {group} order by {order}
"""
# What few builds have read is looked up one by one, or the whole table would be read for one dataset; what all builds
# have read is joined.
LOOKED_UP = """
    lateral (
        select x.batch_id, x.bytes from varve.batch x
        where (x.dataset, x.partition, x.batch_id) = (r.source, r.partition, r.number) offset 0
    ) b on true
"""
JOINED = "varve.batch b on (b.dataset, b.partition, b.batch_id) = (r.source, r.partition, r.number)"
# Each byte counts in one place: as current, else as pinned, else as of an environment (of batches that never were
# current in production), else as retired. In the warehouse, batches of a partition that grows list the same tables:
# each of those counts once, in the best place of a batch that lists it. In the lake each has its own files, or links.
STORAGE = """
    with held as (
        select x.dataset, x.partition, x.batch_id, x.bytes, case
            when c.batch_id is not null then 1
            when exists (select from varve.valid_pin p
                where (p.dataset, p.partition, p.batch_id) = (x.dataset, x.partition, x.batch_id)) then 2
            when x.environment <> '' and x.published_at is null then 3
            else 4 end as place
        from varve.batch x left join varve.current c using (dataset, partition, batch_id)
        where x.bytes is not null and (%(dataset)s::text is null or x.dataset = any({names}))
            and (x.state in ('published', 'retired', 'staged') or x.state = 'swept' and x.deleted_at is null)
    ), shared as (
        select g.* from varve.batch_part g join varve.dataset d using (dataset)
        where d.store = 'warehouse' and (%(dataset)s::text is null or g.dataset = any({names}))
    ), tables as (
        select h.dataset, p.bytes, min(h.place) as place
        from held h join shared g using (dataset, partition, batch_id) cross join lateral unnest(g.parts) u (part_id)
        join varve.part p on (p.dataset, p.partition, p.part_id) = (h.dataset, h.partition, u.part_id)
        group by h.dataset, h.partition, p.part_id, p.bytes
    )
    select dataset, coalesce(sum(bytes) filter (where place = 1), 0)::bigint,
        coalesce(sum(bytes) filter (where place = 4), 0)::bigint,
        coalesce(sum(bytes) filter (where place = 2), 0)::bigint,
        coalesce(sum(bytes) filter (where place = 3), 0)::bigint
    from (
        select h.dataset, h.bytes, h.place from held h left join shared g using (dataset, partition, batch_id)
        where g.batch_id is null
        union all
        select dataset, bytes, place from tables
    ) b group by dataset order by dataset
"""
# For each grouping: what identifies a line, by what it is grouped, and its order.
LINES = {
    CostsBy.DATASET: ("b.dataset, '', '', '', min(b.began)", "b.dataset", "b.dataset"),
    CostsBy.RUN: (
        "b.dataset, b.run_id, '', b.environment, min(b.began)",
        "b.run_id, b.dataset, b.environment",
        "min(b.began) desc, b.dataset",
    ),
    CostsBy.MONTH: ("b.dataset, '', b.month, '', min(b.began)", "b.month, b.dataset", "b.month desc, b.dataset"),
}
