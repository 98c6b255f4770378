DROP TABLE run_instance;
DROP TABLE job_data;
ALTER TABLE job DROP COLUMN successors;
ALTER TABLE job DROP COLUMN task;
