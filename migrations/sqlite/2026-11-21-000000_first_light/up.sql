-- The first schema. Times are milliseconds since 1970 in UTC, ids 32 hexadecimal digits, states of runs go by name.
-- An INTEGER PRIMARY KEY is SQLite's own row number: such a table is kept in the order of its key without an index.

CREATE TABLE meta (
    "key" TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE job (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    job_type TEXT NOT NULL,
    description TEXT,
    is_enabled BOOLEAN NOT NULL,
    is_deleted BOOLEAN NOT NULL,
    priority INTEGER NOT NULL,
    version BIGINT NOT NULL,
    -- The names of the tokens that made and last changed it.
    create_by TEXT,
    update_by TEXT,
    creation_time BIGINT NOT NULL,
    update_time BIGINT NOT NULL
);
CREATE UNIQUE INDEX job_name ON job (name) WHERE is_deleted = 0;
CREATE INDEX job_creation ON job (creation_time, id);

CREATE TABLE job_property (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL,
    "key" TEXT NOT NULL,
    value TEXT NOT NULL
);
CREATE UNIQUE INDEX job_property_key ON job_property (job_id, "key");

CREATE TABLE run (
    -- Stands for the run in the keys of its blocks, so it is never given twice.
    no INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    identity TEXT NOT NULL UNIQUE,
    job_id TEXT NOT NULL,
    job_name TEXT NOT NULL,
    class_name TEXT NOT NULL,
    arguments TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    priority INTEGER NOT NULL,
    -- The settings, as JSON.
    download TEXT NOT NULL,
    queue TEXT NOT NULL,
    start_returned BOOLEAN NOT NULL,
    -- Counts the adoptions: whoever writes under an older one is no longer the owner.
    epoch BIGINT NOT NULL,
    owner TEXT,
    block_times BIGINT NOT NULL,
    success BIGINT NOT NULL,
    error BIGINT NOT NULL,
    total BIGINT NOT NULL,
    worker_id TEXT,
    trace_id TEXT,
    planned_at BIGINT,
    creation_time BIGINT NOT NULL,
    finish_time BIGINT
);
CREATE INDEX run_state ON run (state, no);
CREATE INDEX run_job ON run (job_id, no);

-- The ledger of fires: one row for each planned instant of a job, with what became of it.
CREATE TABLE fire (
    job_id TEXT NOT NULL,
    planned_at BIGINT NOT NULL,
    verdict TEXT NOT NULL,
    reason TEXT,
    run_identity TEXT,
    creation_time BIGINT NOT NULL,
    PRIMARY KEY (job_id, planned_at)
) WITHOUT ROWID;

-- Small and hot. The key is run.no * 2^32 + the block's number, so that a run's blocks stand together.
CREATE TABLE block (
    "key" INTEGER NOT NULL PRIMARY KEY,
    -- 1 ready, 4 success, 8 failed, 16 retry; 2, at a node, is never written.
    state SMALLINT NOT NULL,
    attempt INTEGER NOT NULL,
    requests INTEGER NOT NULL,
    success INTEGER NOT NULL,
    error INTEGER NOT NULL,
    acked BOOLEAN NOT NULL,
    -- Where its results are: which file of the results folder, and which bytes.
    segment INTEGER,
    seg_offset BIGINT,
    seg_length BIGINT,
    creation_time BIGINT NOT NULL,
    finish_time BIGINT,
    node_id TEXT,
    exception TEXT
);

-- Large and cold: written once. The prints stand before the payload, so that loading them reads little else.
CREATE TABLE block_payload (
    "key" INTEGER NOT NULL PRIMARY KEY,
    raw_length BIGINT NOT NULL,
    prints BLOB NOT NULL,
    payload BLOB NOT NULL
);

CREATE TABLE node (
    node_id TEXT NOT NULL PRIMARY KEY,
    node_type TEXT NOT NULL,
    ip_address TEXT NOT NULL,
    processor_count BIGINT NOT NULL,
    "group" TEXT NOT NULL,
    operating_system TEXT NOT NULL,
    memory BIGINT NOT NULL,
    max_process_count BIGINT NOT NULL,
    is_enabled BOOLEAN NOT NULL,
    creation_time BIGINT NOT NULL,
    last_online_time BIGINT NOT NULL
);

CREATE TABLE node_status (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    node_id TEXT NOT NULL,
    process_count BIGINT NOT NULL,
    cpu BIGINT NOT NULL,
    free_memory BIGINT NOT NULL,
    creation_time BIGINT NOT NULL
);
CREATE INDEX node_status_node ON node_status (node_id);

CREATE TABLE worker (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    full_class_name TEXT NOT NULL,
    connection_id TEXT NOT NULL,
    connect_time BIGINT NOT NULL,
    disconnect_time BIGINT
);
CREATE INDEX worker_open ON worker (connection_id) WHERE disconnect_time IS NULL;
