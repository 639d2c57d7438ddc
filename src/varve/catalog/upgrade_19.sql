-- Version 19, code from 18 on: acceptances outlive a projection that follows (docs/planning.md).

-- As before, but where the projection of a partition has moved and not its batch, as `varve repair` and every move of a Hive
-- table have it, the partition was ended as accepted and computed again. EXECUTE plans anew, as in varve.in_force.
create or replace function varve.accept_publish() returns trigger language plpgsql as $$
declare
    came text := 'new_rows';
begin
    if exists (select from varve.acceptance) then
        if tg_op = 'UPDATE' then
            came := '(select dataset, partition, batch_id from new_rows
                except select dataset, partition, batch_id from old_rows)';
        end if;
        execute 'delete from varve.acceptance a using ' || came || ' n
            where a.dataset = n.dataset and a.partition = n.partition and a.version is not null';
        execute 'update varve.acceptance a set version = n.batch_id::text from ' || came || ' n
            where a.source = n.dataset and a.source_partition = n.partition and a.version is null
                and a.mark < n.batch_id';
    end if;
    return null;
end $$;
create or replace trigger accepted_moved after update on varve.current
    referencing old table as old_rows new table as new_rows for each statement execute function varve.accept_publish();
