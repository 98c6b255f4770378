-- What is kept of each worker, and what an operator said of it.

CREATE TABLE worker_record (
    id TEXT NOT NULL PRIMARY KEY,
    -- What it says of itself as it begins to watch.
    name TEXT,
    group_name TEXT,
    version TEXT,
    -- JSON lists of texts.
    tags TEXT NOT NULL,
    class_names TEXT NOT NULL,
    -- Tasks at a time; none: it did not say.
    slots INTEGER,
    -- The operator's word: enabled, disabled, draining, kicked; why, who and when.
    state TEXT NOT NULL,
    reason TEXT,
    "by" TEXT,
    update_time BIGINT NOT NULL,
    creation_time BIGINT NOT NULL,
    last_seen BIGINT NOT NULL
) WITHOUT ROWID;

-- Watches that ended, for the cleaning.
CREATE INDEX worker_ended ON worker (disconnect_time) WHERE disconnect_time IS NOT NULL;
