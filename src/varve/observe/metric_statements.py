"""The SQL of the metrics, one constant for each statement; metrics.py executes them.

Each is one pass over a table that has an index for it, or over all batches; all that is asked at one scrape is seen in
one snapshot.
"""

from __future__ import annotations

# Batches stay in the catalog when they are replaced or swept: these counts only grow, also over restarts. To a
# partition that grows a run has written its own part.
BUILDS = """
    select dataset, outcome, count(*)::bigint, coalesce(sum(partitions), 0)::bigint, coalesce(sum(seconds), 0)::float8,
        coalesce(sum(rows), 0)::bigint, coalesce(sum(bytes), 0)::bigint
    from (
        select dataset, batch_id, count(*) as partitions, sum(coalesce(own_rows, rows)) as rows,
            sum(coalesce(own_bytes, bytes)) as bytes,
            case when bool_or(state = 'failed') then 'failed' else 'succeeded' end as outcome,
            greatest(extract(epoch from max(coalesce(staged_at, failed_at)) - min(started_at)), 0) as seconds
        from varve.batch where state not in ('building', 'staged') group by dataset, batch_id
    ) builds group by dataset, outcome order by 1, 2
"""
# A retirement is recorded as a publish that makes no batch current, and is none here.
PUBLISHES = """
    select dataset, kind, count(*)::bigint, extract(epoch from max(published_at))::float8
    from varve.publish left join (
        select distinct dataset, build_id, true as is_withdrawal from varve.published w
        where batch_id is null and not exists (
            select from varve.published c
            where (c.dataset, c.build_id) = (w.dataset, w.build_id) and c.batch_id is not null)
    ) withdrawals using (dataset, build_id)
    where kind <> 'publish' or is_withdrawal is null group by dataset, kind order by 1, 2
"""
# From when a build's rows lie in the store until they are current: the check of its rows, and the wait for readers with
# old snapshots and for readers who hold the view.
PUBLISH_WAITS = """
    select dataset, count(*)::bigint, sum(seconds)::float8, max(seconds) filter (where recent)::float8 from (
        select p.dataset, p.published_at > clock_timestamp() - interval '1 hour' as recent,
            greatest(extract(epoch from p.published_at - max(b.staged_at)), 0) as seconds
        from varve.publish p join varve.batch b on b.dataset = p.dataset and b.batch_id = p.build_id
        where p.kind = 'publish' and b.staged_at is not null
        group by p.dataset, p.build_id, p.published_at
    ) waits group by dataset order by 1
"""
# What waits right now. A reader is any session that is not one of Varve's own: those say so in their application name.
WAITING_SESSIONS = """
    select who, count(*)::bigint, coalesce(max(seconds), 0)::float8 from (
        select case when a.application_name like 'varve%%' then 'varve' else 'reader' end as who,
            extract(epoch from clock_timestamp() - a.state_change) as seconds
        from pg_stat_activity a
        where a.datname = current_database() and a.wait_event_type = 'Lock' and a.pid <> pg_backend_pid()
    ) sessions group by who order by who
"""
OLDEST_SNAPSHOT = """
    select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)::float8 from pg_stat_activity
    where datname = current_database() and backend_xmin is not null and pid <> pg_backend_pid()
        and application_name not like 'varve%%'
"""
# The Hive table lags by what it does not show, and by what was withdrawn and it still shows.
CURRENT = """
    select d.dataset, d.store, count(c.partition)::bigint, coalesce(sum(b.rows), 0)::bigint,
        count(c.partition) filter (where c.projected_batch_id is distinct from c.batch_id and d.store = 'lake')::bigint
            + (select count(*) from varve.withdrawn w where w.dataset = d.dataset and not exists (
                select from varve.current n where (n.dataset, n.partition) = (w.dataset, w.partition)))
    from varve.dataset d left join varve.current c using (dataset)
    left join varve.batch b using (dataset, partition, batch_id)
    where strpos(d.dataset, '#') = 0 group by d.dataset, d.store order by d.dataset
"""
# Partitions whose last try failed, with nothing published or withdrawn since, that are on hold after a rollback, that a
# backfill has marked, that are being built. What was dropped cannot be mended.
PARTITIONS = """
    select dataset, 'failed', count(distinct partition)::bigint from varve.batch b
    where state = 'failed' and environment = '' and strpos(b.dataset, '#') = 0 and b.batch_id > coalesce((
        select max(c.build_id) from varve.published c where (c.dataset, c.partition) = (b.dataset, b.partition)), 0)
    group by dataset
    union all select dataset, 'on hold', count(*)::bigint from varve.hold group by dataset
    union all select dataset, 'marked', count(distinct partition)::bigint from varve.dirty group by dataset
    union all select dataset, 'building', count(*)::bigint from varve.living where environment = '' group by dataset
    order by 1, 2
"""
REJECTED = """
    select dataset, kind, count(*)::bigint, extract(epoch from clock_timestamp() - min(since))::float8
    from varve.rejected_arrival group by dataset, kind order by 1, 2
"""
LEFT_OUT = "select sensor, dataset, kind, count(*)::bigint from varve.left_out group by 1, 2, 3 order by 1, 2, 3"
ARRIVALS = """
    select dataset, count(*)::bigint, extract(epoch from max(arrived_at))::float8 from varve.arrival
    group by dataset order by 1
"""
HAS_CAPTURES = "select to_regclass('varve.cdc_position') is not null"
CAPTURES = """
    select dataset, state, greatest(extract(epoch from clock_timestamp() - captured_at), 0)::float8,
        greatest(extract(epoch from clock_timestamp() - applied_at), 0)::float8, quarantined
    from varve.cdc_position order by dataset
"""
LEASES = """
    select case when lost_at is not null then 'lost' when expires_at < clock_timestamp() then 'expired'
        when taken then 'held' else 'starting' end as state, count(*)::bigint
    from varve.lease group by 1 order by 1
"""
