-- Version 13: alerts (docs/alerts.md).

-- A condition of which people are told, from when it was first seen until it was seen no more. Times are of whoever has
-- looked, as are those by which it is decided what is late.
create table varve.alert (
    id bigint generated always as identity primary key,
    kind text not null,
    -- Empty: of no dataset, as a full disk. Not a reference: the alert of a dropped dataset ends at the next look.
    dataset text not null,
    subject text not null,
    message text not null,
    opened_at timestamptz not null,
    -- When it was last seen.
    seen_at timestamptz not null,
    closed_at timestamptz
);
-- Whoever looks at the same moment opens it once.
create unique index alert_open on varve.alert (kind, dataset, subject) where closed_at is null;
create index alert_closed on varve.alert (closed_at) where closed_at is not null;

-- What is to be said of it, and to whom; channels are known by the names that the settings give them.
create table varve.alert_message (
    alert bigint not null references varve.alert on delete cascade,
    event text not null check (event in ('opened', 'closed')),
    channel text not null,
    sent_at timestamptz,
    primary key (alert, event, channel)
);
create index alert_message_waiting on varve.alert_message (channel) where sent_at is null;

-- Channels that did not take what was sent, until they take something again.
create table varve.alert_channel_down (
    channel text primary key,
    since timestamptz not null,
    attempts int not null,
    next_try_at timestamptz not null,
    reason text not null
);

-- The expectations that rows of the build broke, by name; null: something else was wrong, or nothing.
alter table varve.batch add column broken text[];
create index batch_broken on varve.batch (dataset, partition) where broken is not null;
