-- Who leads, and who is there. These two tables are read by brokers of other versions: later ones only add to them.

-- One row at most.
CREATE TABLE leader (
    id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    -- The broker's process: its id, its address for clients, its number in the system.
    broker TEXT NOT NULL,
    url TEXT NOT NULL,
    pid BIGINT NOT NULL,
    -- Counted up by each that takes over: what is written under an older one is refused.
    term BIGINT NOT NULL,
    -- Counted up by the leader; others look whether it moves, and at no clock but their own.
    renewals BIGINT NOT NULL,
    -- It holds the lock on `<database>.lock`, so that a free lock means that it is dead.
    is_locked BOOLEAN NOT NULL,
    -- It ended well.
    is_released BOOLEAN NOT NULL,
    since BIGINT NOT NULL,
    renewed_at BIGINT NOT NULL,
    -- The silence, in milliseconds, after which it may be taken for gone.
    ttl_ms BIGINT NOT NULL
);

CREATE TABLE broker (
    id TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    version TEXT NOT NULL,
    -- leader or standby.
    role TEXT NOT NULL,
    started_at BIGINT NOT NULL,
    last_seen BIGINT NOT NULL
) WITHOUT ROWID;
