-- When each node was connected: its last hundred connections.
CREATE TABLE node_connection (
    node_id TEXT COLLATE "C" NOT NULL,
    connect_time BIGINT NOT NULL,
    ip_address TEXT COLLATE "C" NOT NULL,
    disconnect_time BIGINT,
    -- Why it ended.
    reason TEXT COLLATE "C",
    PRIMARY KEY (node_id, connect_time)
);
