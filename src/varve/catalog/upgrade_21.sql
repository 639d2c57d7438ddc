-- Version 21, code from 18 on: what runs add to partitions, and which were killed (docs/observability.md); who watches (docs/alerts.md).

-- Of a partition that grows: the rows and bytes that the run has added, and the bytes of the files from which it read them;
-- null where it does not grow. varve.part and varve.part_file say so too, until a sweep deletes their rows.
alter table varve.batch
    add column own_rows bigint,
    add column own_bytes bigint,
    add column own_read bigint;
update varve.batch b set own_rows = p.rows, own_bytes = p.bytes, own_read = f.bytes
from varve.part p left join (
    select dataset, partition, part_id, sum(bytes)::bigint as bytes from varve.part_file group by 1, 2, 3
) f using (dataset, partition, part_id)
where (b.dataset, b.partition, b.batch_id) = (p.dataset, p.partition, p.part_id);

-- Triggers, because code of the version before goes on adding to partitions. EXECUTE plans anew, as in varve.in_force.
create function varve.note_parts() returns trigger language plpgsql as $$
begin
    execute 'update varve.batch b set own_rows = n.rows, own_bytes = n.bytes from new_rows n
        where (b.dataset, b.partition, b.batch_id) = (n.dataset, n.partition, n.part_id)';
    return null;
end $$;
create trigger noted after insert on varve.part
    referencing new table as new_rows for each statement execute function varve.note_parts();

create function varve.note_part_files() returns trigger language plpgsql as $$
begin
    execute 'update varve.batch b set own_read = n.bytes from (
            select dataset, partition, part_id, sum(bytes)::bigint as bytes from new_rows group by 1, 2, 3
        ) n
        where (b.dataset, b.partition, b.batch_id) = (n.dataset, n.partition, n.part_id)';
    return null;
end $$;
create trigger noted after insert on varve.part_file
    referencing new table as new_rows for each statement execute function varve.note_part_files();

-- Builds that count as failed because their run ended without a word, until receivers of OpenLineage are told. Whoever finds
-- them, a run or a sweep or another project, need not be who tells.
create table varve.killed (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    noted_at timestamptz not null default clock_timestamp(),
    primary key (dataset, partition, batch_id)
);

-- By project, who looks at what differs from machine to machine, and until when nobody else does unless it is the sensor.
create table varve.alert_watch (
    project text primary key,
    watcher text not null,
    until timestamptz not null
);
