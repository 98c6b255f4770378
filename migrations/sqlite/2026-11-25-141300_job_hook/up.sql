-- Addresses at which other systems trigger a job.
CREATE TABLE job_hook (
    id TEXT PRIMARY KEY NOT NULL,
    job_id TEXT NOT NULL,
    name TEXT NOT NULL,
    -- In clear text, because a signature is checked with it.
    secret TEXT NOT NULL,
    create_by TEXT,
    creation_time BIGINT NOT NULL,
    UNIQUE (job_id, name)
);
