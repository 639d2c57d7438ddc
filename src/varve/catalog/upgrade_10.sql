-- Version 10: which code of each dataset is deployed, and which plans of changes were made (docs/decisions/0015).

-- Every time that a code version was deployed, oldest first.
create table varve.deployment (
    id bigint generated always as identity primary key,
    dataset text not null,
    code_version text not null,
    -- What follows for the partitions that other code has made.
    decision text not null check (decision in ('hold', 'rebuild', 'forward')),
    -- For 'forward': the begin of the first window that this code makes.
    forward_from timestamptz,
    -- The plan that was applied; null where no person had to decide.
    plan bigint,
    -- The declaration as it is written, for people to compare.
    source text not null,
    deployed_by text not null,
    deployed_at timestamptz not null default clock_timestamp()
);
create index deployment_of_dataset on varve.deployment (dataset, id);

-- The deployment that counts. A publish locks this row, so that none of other code comes after the next deployment.
create table varve.deployed (
    dataset text primary key,
    deployment bigint not null references varve.deployment,
    code_version text not null,
    -- Whether current batches may have been made by other code. Never false where one was, unless a rollback brought it.
    may_be_mixed boolean not null
);

-- Batches of other code that stay by decision: they lie before the boundary of 'forward'.
create table varve.accepted_code (
    dataset text not null,
    partition text not null,
    batch_id bigint not null,
    -- The deployment under which they stay; null: under the first one that there will be.
    deployment bigint references varve.deployment,
    primary key (dataset, partition, batch_id)
);

-- Before this version, codes were hashed by another rule: what they made cannot be compared, and stays.
insert into varve.accepted_code (dataset, partition, batch_id)
    select dataset, partition, batch_id from varve.batch where state in ('published', 'retired') and code_version <> '';

-- Plans of what a change of code means. A plan is applied, or overtaken by the next.
create table varve.plan (
    id bigint generated always as identity primary key,
    -- Of everything that the plan assumes.
    digest text not null,
    contents jsonb not null,
    made_by text not null,
    made_at timestamptz not null default clock_timestamp(),
    applied_at timestamptz,
    applied_by text
);
create index plan_by_digest on varve.plan (digest);
