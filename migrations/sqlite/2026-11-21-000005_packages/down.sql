ALTER TABLE run_instance DROP COLUMN exit_reason;
ALTER TABLE run_instance DROP COLUMN lines;
ALTER TABLE node DROP COLUMN reason;
ALTER TABLE node DROP COLUMN is_leaving;
ALTER TABLE node DROP COLUMN is_draining;
DROP TABLE package;
