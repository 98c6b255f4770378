-- What a clock that goes back leaves of a plan: from when a pause counts that a run asked for, and up to where instants may have
-- made a run that are to be decided again.
ALTER TABLE plan ADD COLUMN asked_from BIGINT;
ALTER TABLE plan ADD COLUMN fired_until BIGINT;

-- The time that a run asked for travels with its end, until its job has dealt with that.
CREATE TABLE run_next (
    run_no BIGINT PRIMARY KEY NOT NULL,
    at BIGINT NOT NULL,
    asked_from BIGINT
);
