-- Who made what people make, and who last had a word on it; "by" is the role of a token, as in `job`.

-- Who made a run and when follows from its row; only whoever stops it leaves something here. Nothing was ever written to
-- the column that had a place for an owner, so it becomes this one, and no row grows.
ALTER TABLE run RENAME COLUMN owner TO update_by;

-- The token with which it came first, and the operator's last word on it.
ALTER TABLE node ADD COLUMN create_by TEXT;
ALTER TABLE node ADD COLUMN update_by TEXT;
ALTER TABLE node ADD COLUMN update_time BIGINT NOT NULL DEFAULT 0;
UPDATE node SET update_time = creation_time;

-- Its "by" and "update_time" are the operator's last word on it already.
ALTER TABLE worker_record ADD COLUMN create_by TEXT;

-- Who put there by hand what the next run will find; what a run leaves is that run's.
ALTER TABLE job_data ADD COLUMN update_by TEXT;
