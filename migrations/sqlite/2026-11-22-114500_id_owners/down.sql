DROP TABLE id_owner;
