-- Version 20, code from 18 on: what leaves an environment is kept for the whole grace period (docs/environments.md).

-- When batches left the overlays of environments. Rows are added only, and nobody waits for another: a batch may have
-- several, of several environments. A sweep deletes those of batches that are not retired any more.
create table varve.former_overlay (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    until timestamptz not null default clock_timestamp()
);
create index former_overlay_of_batch on varve.former_overlay (dataset, partition, batch_id);

-- When environments left their bases. One row for all batches of a base: what was current then, varve.published says.
create table varve.former_base (
    base bigint not null,
    until timestamptz not null default clock_timestamp()
);

-- Until when environments had batches in their overlays, and stood on bases; where they still do, until now.
create view varve.overlaid as
    select dataset, partition, batch_id, until from varve.former_overlay
    union all
    select dataset, partition, batch_id, clock_timestamp() from varve.overlay where batch_id is not null;
create view varve.stood_on as
    select base, until from varve.former_base
    union all
    select base, clock_timestamp() from varve.environment where base is not null;

-- Triggers, because overlays also end with their environment, by its foreign key. EXECUTE plans anew, as in varve.in_force.
create function varve.leave_overlay() returns trigger language plpgsql as $$
declare
    stayed text := '';
begin
    if tg_op = 'UPDATE' then
        stayed := ' except select environment, dataset, partition, batch_id from new_rows';
    end if;
    execute 'insert into varve.former_overlay (dataset, partition, batch_id)
        select dataset, partition, batch_id from (
            select environment, dataset, partition, batch_id from old_rows where batch_id is not null' || stayed || '
        ) gone';
    return null;
end $$;
create trigger overlay_updated after update on varve.overlay
    referencing old table as old_rows new table as new_rows for each statement execute function varve.leave_overlay();
create trigger overlay_deleted after delete on varve.overlay
    referencing old table as old_rows for each statement execute function varve.leave_overlay();

create function varve.leave_base() returns trigger language plpgsql as $$
begin
    insert into varve.former_base (base) values (old.base);
    return null;
end $$;
create trigger base_moved after update on varve.environment
    for each row when (old.base is distinct from new.base and old.base is not null)
    execute function varve.leave_base();
create trigger base_deleted after delete on varve.environment
    for each row when (old.base is not null) execute function varve.leave_base();
