-- Tasks on workers, and runs of several instances.

-- What a task job says of its task, and which jobs begin when a run of the job ends; JSON.
ALTER TABLE job ADD COLUMN task TEXT;
ALTER TABLE job ADD COLUMN successors TEXT;

-- What the last run of a job left for the next one: JSON.
CREATE TABLE job_data (
    job_id TEXT NOT NULL PRIMARY KEY,
    data TEXT NOT NULL,
    run_identity TEXT NOT NULL,
    update_time BIGINT NOT NULL
) WITHOUT ROWID;

-- The instances of a run that has several: shards, workers of a broadcast, programs on nodes. A run of one task is its own
-- only instance and has no row here.
CREATE TABLE run_instance (
    run_no BIGINT NOT NULL,
    -- From 0.
    instance INTEGER NOT NULL,
    -- The worker or node that has it, or had it last.
    peer TEXT,
    attempt INTEGER NOT NULL,
    -- As that of a run.
    state TEXT NOT NULL,
    reason TEXT,
    -- What it brought, as JSON.
    result TEXT,
    start_time BIGINT,
    finish_time BIGINT,
    PRIMARY KEY (run_no, instance)
) WITHOUT ROWID;
