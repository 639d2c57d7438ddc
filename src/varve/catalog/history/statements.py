"""The SQL of the history, one constant for each statement; history.py executes them."""

from __future__ import annotations

BATCHES = """
    select b.partition, b.batch_id, b.state, c.batch_id is not null, b.run_id, b.rows, b.bytes, b.files, b.content,
        b.statistics, b.location, b.started_at, b.published_at, b.retired_at, b.swept_at, b.failure,
        (select coalesce(json_agg(json_build_array(p.owner, p.reason, p.expires_at) order by p.owner), '[]')
         from varve.valid_pin p where (p.dataset, p.partition, p.batch_id) = (b.dataset, b.partition, b.batch_id)),
        case when b.published_at is null then b.environment else '' end
    from varve.batch b left join varve.current c using (dataset, partition, batch_id)
    where b.dataset = %s and (%s::text[] is null or b.partition = any(%s))
        and (%s::text[] is null or b.run_id = any(%s))
    order by b.partition, b.batch_id desc limit %s
"""
# The runs of batches, or of changes of what is current, whose ids begin with a text.
RUNS_OF_BATCHES = """
    select distinct run_id from varve.batch
    where dataset = %s and (%s::text[] is null or partition = any(%s)) and starts_with(run_id, %s)
"""
RUNS_OF_CHANGES = """
    select distinct run_id from varve.publication
    where dataset = %s and (%s::text[] is null or partition = any(%s)) and starts_with(run_id, %s)
"""
PARTITIONS = "select distinct partition from varve.batch where dataset = %s"
# A statement of its own: few partitions are found in the index of each, and not among all.
PARTITIONS_OF = """
    select p.partition from unnest(%s::text[]) as p (partition)
    where exists (select from varve.batch b where b.dataset = %s and b.partition = p.partition)
"""
PINNED = """
    select distinct batch_id from varve.valid_pin
    where dataset = %s and (%s::text[] is null or partition = any(%s)) and (%s::bigint[] is null or batch_id = any(%s))
"""
CHANGES = """
    select partition, batch_id, kind, run_id, reason, published_at from varve.publication
    where dataset = %s and (%s::text[] is null or partition = any(%s)) and (%s::text[] is null or run_id = any(%s))
    order by id desc, partition limit %s
"""
# Ordered by id and not by time: clocks may go back, and readers saw what was recorded last.
AS_OF = """
    select b.partition, b.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs, b.content
    from (
        select distinct on (partition) dataset, partition, batch_id from varve.publication
        where dataset = %s and published_at <= %s and (%s::text[] is null or partition = any(%s))
        order by partition, id desc
    ) p join varve.batch b using (dataset, partition, batch_id)
    where b.state in ('published', 'retired') or not %s order by b.partition
"""
AS_OF_RUN = """
    select b.partition, b.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs, b.content
    from (
        select distinct on (partition) dataset, partition, batch_id from varve.publication
        where dataset = %s and id <= (select max(id) from varve.publish where dataset = %s and run_id = %s)
        order by partition, id desc
    ) p join varve.batch b using (dataset, partition, batch_id)
    where b.state in ('published', 'retired') or not %s order by b.partition
"""
BY_ID = """
    select b.partition, b.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs, b.content
    from varve.batch b where b.dataset = %s and b.batch_id = %s
      and b.state in ('published', 'retired') and (%s::text[] is null or b.partition = any(%s)) order by b.partition
"""
STATE_OF = """
    select partition, state, swept_at from varve.batch
    where dataset = %s and batch_id = %s and (%s::text[] is null or partition = any(%s)) order by partition
"""
MADE_BY_RUN = """
    select partition, max(batch_id) from varve.batch
    where dataset = %s and partition = any(%s) and run_id = %s and state = any(%s) group by partition
"""
# The batch that was current before a run's first publication of each partition, and the last one that it published.
BEFORE_RUN = """
    select r.dataset, r.partition, b.batch_id, r.last_batch_id, c.batch_id from (
        select dataset, partition, min(id) as id, max(batch_id) as last_batch_id from varve.publication
        where run_id = %s and (%s::text is null or dataset = %s) group by dataset, partition
    ) r
    left join lateral (
        select p.batch_id from varve.publication p
        where (p.dataset, p.partition) = (r.dataset, r.partition) and p.id < r.id order by p.id desc limit 1
    ) b on true
    left join varve.current c on (c.dataset, c.partition) = (r.dataset, r.partition)
    order by r.dataset, r.partition
"""
LOCK_BATCHES = """
    select partition, state, swept_at from varve.batch
    where dataset = %s and batch_id = %s and (%s::text[] is null or partition = any(%s))
    order by partition for share
"""
PIN = """
    insert into varve.pin (dataset, partition, batch_id, owner, reason, expires_at)
    select %s, partition, %s, %s, %s, %s from unnest(%s::text[]) as partition
    on conflict (dataset, partition, batch_id, owner) do update
    set reason = excluded.reason, expires_at = excluded.expires_at, pinned_at = excluded.pinned_at
"""
UNPIN = """
    delete from varve.pin
    where dataset = %s and batch_id = %s and (%s::text[] is null or partition = any(%s))
      and (%s::text[] is null or owner = any(%s))
"""
OWNERS = """
    select distinct owner from varve.valid_pin
    where dataset = %s and (%s::text[] is null or partition = any(%s)) and (%s::bigint[] is null or batch_id = any(%s))
"""
CLAIM_OWNER = "select pg_advisory_xact_lock(hashtextextended('varve pins of ' || %s, 0))"
PINNED_BY = "select distinct dataset from varve.valid_pin where owner = %s order by 1"
OLDEST_LIVING = "select min(started_at) from varve.living"
FORGET_EXPIRED = "delete from varve.pin where expires_at <= clock_timestamp()"
# Whatever is retired later counts from then on.
FORGET_LEFT = """
    delete from varve.former_overlay o where not exists (
        select from varve.batch b
        where (b.dataset, b.partition, b.batch_id) = (o.dataset, o.partition, o.batch_id) and b.state = 'retired')
"""
# A Hive table that lags may still show a retired batch: without its folder, readers would get no rows.
# A living build reads only batches that were current at some time since it began, in production or an environment.
# The function is asked of a batch only where there is an environment: for two million batches it takes a minute. The
# bases that environments have left are asked last, of what nothing else keeps, and only those left of late.
RETIRED = """
    with oldest as materialized (select min(started_at) as began from varve.living), overlaid as (
        select dataset, partition, batch_id, max(until) as until from varve.overlaid group by 1, 2, 3
    ), retired as (
        select b.dataset, b.partition, b.batch_id, b.generation, b.location, b.bytes,
            greatest(b.retired_at, o.until) as retired_at, b.published_at is not null as was_current,
            row_number() over (partition by b.dataset, b.partition, b.published_at is not null
                order by b.retired_at desc, b.batch_id desc) as age
        from varve.batch b left join overlaid o using (dataset, partition, batch_id)
        where b.state = 'retired' and (%(dataset)s::text is null or b.dataset = %(dataset)s)
    ), stood_on as materialized (
        select base, max(until) as until from varve.stood_on
        where until >= least(clock_timestamp() - %(longest)s::interval, (select began from oldest)) group by base
    ), judged as (
        select r.*, coalesce(g.store, d.store) as store, k.age as retained, case
            when exists (select from varve.valid_pin p
                where (p.dataset, p.partition, p.batch_id) = (r.dataset, r.partition, r.batch_id)) then 'pinned'
            when exists (select from varve.living_environment)
                and varve.in_environment(r.dataset, r.partition, r.batch_id) then 'environment'
            when exists (select from varve.current c where (c.dataset, c.partition) = (r.dataset, r.partition)
                and c.projected_batch_id is distinct from c.batch_id) or exists (
                select from varve.withdrawn w where (w.dataset, w.partition) = (r.dataset, r.partition)
                    and not exists (
                        select from varve.current c where (c.dataset, c.partition) = (w.dataset, w.partition)))
                or g.is_shown then 'shown'
            when r.retired_at > clock_timestamp() - %(older_than)s::interval then 'recent'
            when r.was_current and r.age <= %(keep_last)s and strpos(r.dataset, '#') = 0 then 'last'
            when k.dataset is not null and k.age is null then 'broken'
            when r.retired_at > clock_timestamp() - k.age or r.was_current and r.age <= k.last then 'declared'
            when r.retired_at >= (select began from oldest) then 'in use'
            else '' end as kept
        from retired r join varve.dataset d using (dataset)
        left join varve.generation g on (g.dataset, g.number) = (r.dataset, r.generation)
        left join unnest(%(names)s::text[], %(ages)s::interval[], %(lasts)s::int[]) as k (dataset, age, last)
            on k.dataset = r.dataset
    )
    select j.dataset, j.store, j.partition, j.batch_id, j.location, j.bytes, j.retired_at, case
        when j.kept <> '' or not exists (select from stood_on) then j.kept
        else (
            select case
                when max(s.until) > clock_timestamp() - %(older_than)s::interval then 'recent'
                when max(s.until) > clock_timestamp() - j.retained then 'declared'
                when max(s.until) >= (select began from oldest) then 'in use'
                else '' end
            from (
                select p.batch_id, p.id, lead(p.id) over (order by p.id) as next from varve.publication p
                where p.dataset = j.dataset and p.partition = j.partition
            ) h join stood_on s on s.base >= h.id and (h.next is null or s.base < h.next)
            where h.batch_id = j.batch_id
        ) end
    from judged j order by j.dataset, j.partition, j.batch_id
"""
# Two statements: pins must be read after the batches are locked, or a pin that is set at this moment would be missed.
LOCK_RETIRED = """
    select b.partition, b.batch_id from varve.batch b
    join unnest(%s::text[], %s::bigint[]) as t (partition, batch_id) using (partition, batch_id)
    where b.dataset = %s and b.state = 'retired' for update of b skip locked
"""
MARK = """
    update varve.batch b set state = 'swept', swept_at = clock_timestamp()
    from unnest(%s::text[], %s::bigint[], %s::timestamptz[]) as t (partition, batch_id, retired_at)
    where b.dataset = %s and (b.partition, b.batch_id) = (t.partition, t.batch_id) and b.state = 'retired'
      and not exists (select from varve.valid_pin p
        where (p.dataset, p.partition, p.batch_id) = (b.dataset, b.partition, b.batch_id))
      and not varve.in_environment(b.dataset, b.partition, b.batch_id)
      and not exists (select from varve.current c
        where (c.dataset, c.partition, c.batch_id) = (b.dataset, b.partition, b.batch_id))
      and (b.retired_at is null or b.retired_at <= t.retired_at) and not exists (select from varve.former_overlay o
        where (o.dataset, o.partition, o.batch_id) = (b.dataset, b.partition, b.batch_id)
            and o.until > coalesce(t.retired_at, '-infinity'))
"""
UNDELETED = """
    select b.dataset, coalesce(g.store, d.store), b.partition, b.batch_id, b.location, b.bytes, b.retired_at, ''
    from varve.batch b join varve.dataset d using (dataset)
    left join varve.generation g on (g.dataset, g.number) = (b.dataset, b.generation)
    where b.state = 'swept' and b.deleted_at is null and (%s::text is null or b.dataset = %s)
    order by b.dataset, b.partition, b.batch_id
"""
DELETED = """
    update varve.batch b set deleted_at = clock_timestamp()
    from unnest(%s::text[], %s::bigint[]) as t (partition, batch_id)
    where b.dataset = %s and (b.partition, b.batch_id) = (t.partition, t.batch_id) and b.state = 'swept'
"""
# Batches whose data exists or may come to exist: current, retired, of a living run, or next to be deleted. What is
# current is kept whatever its row says.
KEPT = """
    select b.dataset, b.partition, b.batch_id, b.location from varve.batch b
    where (b.state in ('published', 'retired') or (b.state = 'swept' and b.deleted_at is null))
    union all
    select dataset, partition, batch_id, location from varve.living
    union all
    select b.dataset, b.partition, b.batch_id, b.location
    from varve.batch b join varve.current c using (dataset, partition, batch_id)
    where b.state in ('building', 'staged') or b.state = 'failed'
"""
PRESENT = """
    select b.partition, b.batch_id, b.location, b.rows, b.bytes, b.run_id, b.published_at, b.inputs, b.content
    from varve.batch b join varve.dataset d using (dataset)
    where b.dataset = %s and b.state in ('published', 'retired') and b.generation = d.generation
    order by b.partition, b.batch_id
"""
DESCRIBED = """
    select b.partition, b.batch_id, b.location, b.run_id, b.code_version, b.rows, b.bytes, b.files, b.content,
        b.statistics, b.inputs, d.declaration
    from varve.batch b join varve.dataset d using (dataset)
    where b.dataset = %s and b.state in ('published', 'retired') and b.generation = d.generation
    order by b.partition, b.batch_id
"""
DATASETS = "select dataset, store from varve.dataset order by dataset"
HAS_RUN = "select from varve.publish where run_id = %s limit 1"
RUNS_LIKE = "select distinct run_id from varve.publish where starts_with(run_id, %s) order by run_id limit 10"
