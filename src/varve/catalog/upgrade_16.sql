-- Version 16, code from 15 on: to which project each dataset belongs (docs/projects.md).

-- Only datasets of projects that have a name. A dataset without a row belongs to whichever named project runs it first.
create table varve.owner (
    dataset text primary key,
    project text not null check (project <> ''),
    -- Who claimed it: `sensors and runs`, or whoever took it with `varve own`.
    claimed_by text not null,
    since timestamptz not null default clock_timestamp()
);

-- The project whose sensors have opened the alert; empty: one without a name, or Varve of before.
alter table varve.alert add column project text not null default '';
