-- The attempts of runs that had more than one: the earlier ones, and the beginning of the last one.
CREATE TABLE run_attempt (
    run_no BIGINT NOT NULL,
    -- From 0.
    instance INTEGER NOT NULL,
    -- From 1.
    attempt INTEGER NOT NULL,
    -- The worker or node that had it.
    peer TEXT,
    -- As that of a run.
    state TEXT NOT NULL,
    reason TEXT,
    start_time BIGINT,
    finish_time BIGINT,
    PRIMARY KEY (run_no, instance, attempt)
);
