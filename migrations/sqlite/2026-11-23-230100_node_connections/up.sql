-- When each node was connected: its last hundred connections.
CREATE TABLE node_connection (
    node_id TEXT NOT NULL,
    connect_time BIGINT NOT NULL,
    ip_address TEXT NOT NULL,
    disconnect_time BIGINT,
    -- Why it ended.
    reason TEXT,
    PRIMARY KEY (node_id, connect_time)
);
