-- Brokers that do not lead and may write the runs that they own.
CREATE TABLE run_owner (
    broker TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    -- Counts the grants to all brokers.
    term BIGINT NOT NULL,
    -- Counts the batches of writes.
    batch BIGINT NOT NULL
);

-- The broker that executes the run. Absent: the leader.
ALTER TABLE run ADD COLUMN owner TEXT COLLATE "C";
CREATE INDEX run_owned ON run (owner, "no") WHERE owner IS NOT NULL AND state IN ('pending', 'scheduled', 'running');
