-- The tables of results (`result_<number>`), which several brokers append to and acknowledge.
-- Only with PostgreSQL has it rows.
CREATE TABLE segment (
    number INTEGER PRIMARY KEY NOT NULL,
    -- The packs that wait for a worker.
    live BIGINT NOT NULL,
    -- Who appends to it: `leader`, or the broker that owns runs. Absent: nobody does any more.
    writer TEXT
);
