-- Version 4 of the catalog: a publish of a thousand partitions notes them by one statement. Row by row, two triggers in
-- PL/pgSQL were most of what a large publish took. Run in one transaction by Catalog.ensure_schema, over version 3.

drop trigger changed on varve.current;
drop trigger cleaned on varve.current;
drop function varve.clean();

-- The change is noted, and a batch that began after a mark takes it away, whichever way it came into force. The plan of a
-- statement is kept for as long as its connection, and may be that of a publish of nothing: EXCEPT needs no good guess, and
-- EXECUTE plans anew. With a join, 10,000 partitions took 45 s.
create function varve.in_force() returns trigger language plpgsql as $$
begin
    if tg_op = 'UPDATE' then
        insert into varve.change (dataset, partition)
            select dataset, partition from (
                select dataset, partition, batch_id from new_rows except select dataset, partition, batch_id from old_rows
            ) moved;
    else
        insert into varve.change (dataset, partition) select dataset, partition from new_rows;
    end if;
    execute 'delete from varve.dirty d using new_rows n
        where d.dataset = n.dataset and d.partition = n.partition and d.number < n.batch_id';
    return null;
end $$;

create function varve.out_of_force() returns trigger language plpgsql as $$
begin
    insert into varve.change (dataset, partition) select dataset, partition from old_rows;
    return null;
end $$;

-- A trigger that sees all rows of a statement may not name columns, nor two events.
create trigger came after insert on varve.current
    referencing new table as new_rows for each statement execute function varve.in_force();
create trigger moved after update on varve.current
    referencing old table as old_rows new table as new_rows for each statement execute function varve.in_force();
create trigger went after delete on varve.current
    referencing old table as old_rows for each statement execute function varve.out_of_force();
