DROP TABLE alert_event;
DROP TABLE job_group;
DROP TABLE run_log;
DROP INDEX run_key;
DROP INDEX run_open;
DROP INDEX run_follow;
ALTER TABLE run DROP COLUMN idempotency_key;
ALTER TABLE run DROP COLUMN retry_of;
ALTER TABLE run DROP COLUMN follow;
ALTER TABLE run DROP COLUMN result;
ALTER TABLE run DROP COLUMN start_time;
ALTER TABLE run DROP COLUMN not_before;
ALTER TABLE run DROP COLUMN attempt;
ALTER TABLE run DROP COLUMN rules;
ALTER TABLE run DROP COLUMN kind;
DROP TABLE fire;
CREATE TABLE fire (
    job_id TEXT NOT NULL,
    planned_at BIGINT NOT NULL,
    verdict TEXT NOT NULL,
    reason TEXT,
    run_identity TEXT,
    creation_time BIGINT NOT NULL,
    PRIMARY KEY (job_id, planned_at)
) WITHOUT ROWID;
DROP TABLE job_history;
DROP TABLE plan;
DROP INDEX job_in_group;
ALTER TABLE job DROP COLUMN disabled_reason;
ALTER TABLE job DROP COLUMN group_name;
ALTER TABLE job DROP COLUMN callback;
ALTER TABLE job DROP COLUMN policies;
ALTER TABLE job DROP COLUMN schedule;
