-- Version 15, code from 15 on: upgrades without a stop (docs/upgrading.md).

-- The oldest code that may use these tables, as a version of the catalog; and when code of each version was last here.
alter table varve.schema_version
    add column oldest int not null default 15,
    add column used jsonb not null default '{}';
