-- Who is told of what, and what came of telling.

-- Where word goes: a webhook or a mailbox.
CREATE TABLE alert_channel (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    -- webhook, mail.
    kind TEXT NOT NULL,
    target TEXT NOT NULL,
    -- Signs what is sent to a webhook.
    secret TEXT,
    -- Which events, jobs and groups, as JSON; an empty list: all.
    filter TEXT NOT NULL,
    is_enabled BOOLEAN NOT NULL,
    version BIGINT NOT NULL,
    create_by TEXT,
    update_by TEXT,
    creation_time BIGINT NOT NULL,
    update_time BIGINT NOT NULL
) WITHOUT ROWID;

-- One event on its way to one channel.
CREATE TABLE alert_delivery (
    event_id BIGINT NOT NULL,
    channel_id TEXT NOT NULL,
    -- Of the event, so that what is alike is found without it.
    event TEXT NOT NULL,
    job_id TEXT,
    -- waiting, sending, done, failed (given up), merged (told with another one).
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    next_at BIGINT NOT NULL,
    -- Events that its message stands for.
    events BIGINT NOT NULL,
    -- The event whose message it is told with.
    merged_into BIGINT,
    last_error TEXT,
    creation_time BIGINT NOT NULL,
    finish_time BIGINT,
    PRIMARY KEY (event_id, channel_id)
) WITHOUT ROWID;
CREATE INDEX alert_delivery_open ON alert_delivery (next_at) WHERE state IN ('waiting', 'sending');
-- The last message of a kind about a job to a channel.
CREATE INDEX alert_delivery_series ON alert_delivery (channel_id, event, job_id, event_id) WHERE merged_into IS NULL;

-- A run is said to be late once.
CREATE UNIQUE INDEX alert_event_late ON alert_event (run_identity) WHERE event = 'late';

-- When a run of the job last ended well, and when it was last said that none did for too long.
ALTER TABLE plan ADD COLUMN ended_well BIGINT;
ALTER TABLE plan ADD COLUMN told_silent BIGINT;
CREATE INDEX job_silent ON job (id) WHERE instr(policies, '"silentAfter"') > 0;
