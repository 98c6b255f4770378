DROP TABLE node_connection;
