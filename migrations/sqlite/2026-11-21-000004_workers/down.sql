DROP INDEX worker_ended;
DROP TABLE worker_record;
