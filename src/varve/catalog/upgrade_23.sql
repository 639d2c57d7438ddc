-- Version 23, code from 18 on: failures that are no attempt, as a service could not be reached (docs/planning.md).

alter table varve.batch add column outage boolean not null default false;
