-- Version 6 of the catalog: which runs live is told by a lease that each renews, and no longer by a process id and the
-- host that it was on. Run in one transaction by Catalog.ensure_schema, over version 5.

-- A row per run that has begun and not ended. All instants are of this server's clock: no other clock is asked.
create table varve.lease (
    run_id text primary key,
    -- For people: which process on which host, or who has launched it.
    holder text not null,
    -- Whether the run's own process has it. Until then it is kept for a process that is still coming up.
    taken boolean not null,
    term interval not null,
    taken_at timestamptz not null default clock_timestamp(),
    renewed_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null,
    -- Who looked first after it had expired, and when. Only a second look, some time later, takes the run for dead: after
    -- an outage of this server all leases have expired, and the living need a moment to renew theirs.
    missed_at timestamptz,
    -- Since when the run counts as dead. It stays so: what it would publish is refused.
    lost_at timestamptz,
    lost_because text not null default ''
);
create index lease_lost on varve.lease (lost_at) where lost_at is not null;

-- The batches of builds that live: their session holds the lock of the partition, and nobody has taken their run for
-- dead. A process that was frozen keeps its session.
create or replace view varve.living as
    select b.* from varve.batch b
    join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted
        and l.database = (select oid from pg_database where datname = current_database())
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended(b.dataset || '/' || b.partition, 0)
    where b.state in ('building', 'staged')
      and not exists (select from varve.lease s where s.run_id = b.run_id and s.lost_at is not null);
