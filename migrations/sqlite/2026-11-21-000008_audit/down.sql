ALTER TABLE job_data DROP COLUMN update_by;
ALTER TABLE worker_record DROP COLUMN create_by;
ALTER TABLE node DROP COLUMN update_time;
ALTER TABLE node DROP COLUMN update_by;
ALTER TABLE node DROP COLUMN create_by;
ALTER TABLE run RENAME COLUMN update_by TO owner;
