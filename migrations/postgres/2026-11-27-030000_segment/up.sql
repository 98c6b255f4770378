-- The tables of results (`result_<number>`), which several brokers append to and acknowledge.
CREATE TABLE segment (
    number INTEGER PRIMARY KEY NOT NULL,
    -- The packs that wait for a worker.
    live BIGINT NOT NULL,
    -- The writer that appends to it: `leader`, or a broker that owns runs. Absent: the segment is complete.
    writer TEXT COLLATE "C"
);
