-- How far each captured table is; beside the catalog, so that a position moves in the transaction that publishes.

create table varve.cdc_position (
    dataset text primary key,
    source text not null,
    -- starting: a snapshot is being taken; running, or waiting for its source (reason); stopped: the stream cannot say
    -- what the table holds (reason).
    state text not null check (state in ('starting', 'running', 'stopped')),
    reason text,
    system_identifier text,
    timeline int,
    -- What the source said of the table when it was captured last.
    source_table jsonb,
    generation int not null default 0,
    -- Up to where we have confirmed to the slot that we have everything.
    told_lsn bigint not null default 0,
    applied_lsn bigint not null default -1,
    -- The folder of the events that could not be decided yet, and how many they are.
    quarantine text,
    quarantined bigint not null default 0,
    captured_at timestamptz,
    applied_at timestamptz,
    -- What the dataset was declared as when its rows were loaded.
    declared jsonb
);
