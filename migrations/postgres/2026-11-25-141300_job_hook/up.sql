-- Addresses at which other systems trigger a job.
CREATE TABLE job_hook (
    id TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    job_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    -- In clear text, because a signature is checked with it.
    secret TEXT COLLATE "C" NOT NULL,
    create_by TEXT COLLATE "C",
    creation_time BIGINT NOT NULL,
    UNIQUE (job_id, name)
);
