-- Schedules, and what comes of them.

-- When the job runs and under which rules, each as JSON; NULL: by hand only, the usual rules.
ALTER TABLE job ADD COLUMN schedule TEXT;
ALTER TABLE job ADD COLUMN policies TEXT;
-- The HTTP request of a callback job, as JSON.
ALTER TABLE job ADD COLUMN callback TEXT;
ALTER TABLE job ADD COLUMN group_name TEXT;
-- Why it is disabled, if somebody or something said so.
ALTER TABLE job ADD COLUMN disabled_reason TEXT;
CREATE INDEX job_in_group ON job (group_name) WHERE group_name IS NOT NULL;

-- How far the plan of a job has been decided. It changes with every fire, so it stands apart from the job's text.
CREATE TABLE plan (
    job_id TEXT NOT NULL PRIMARY KEY,
    -- What the plan says up to and with this instant stands in the ledger.
    decided_until BIGINT NOT NULL,
    -- The next instant; NULL: none, or not until a run has ended. The agenda is made of these.
    next_at BIGINT,
    -- The instant that the last run asked for.
    asked_at BIGINT,
    -- From where an interval after the end of a run counts.
    rest_from BIGINT NOT NULL,
    last_fire BIGINT,
    -- Runs that the plan has made, and failures in a row.
    fires BIGINT NOT NULL,
    failures BIGINT NOT NULL
) WITHOUT ROWID;
INSERT INTO plan (job_id, decided_until, rest_from, fires, failures)
SELECT id, update_time, update_time, 0, 0 FROM job;

-- Every change of a job: who, when, what to. The ledger is proved against this.
CREATE TABLE job_history (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    job_id TEXT NOT NULL,
    version BIGINT NOT NULL,
    -- created, updated, enabled, disabled, deleted, restored, imported.
    action TEXT NOT NULL,
    by TEXT,
    at BIGINT NOT NULL,
    -- The job as it was from then on, as the API shows it, without secrets.
    job TEXT NOT NULL
);
CREATE INDEX job_history_job ON job_history (job_id, version);

ALTER TABLE fire RENAME TO fire_of_old;
-- The ledger of fires: one row for each planned instant of a job, with what became of it. A row that covers more than
-- one instant says how many and until when: what a broker missed that was away for a weekend is not worth a row a second.
CREATE TABLE fire (
    job_id TEXT NOT NULL,
    planned_at BIGINT NOT NULL,
    -- plan, asked (by a run), silence (the longest was over), outside (told by another scheduler), backfill.
    kind TEXT NOT NULL,
    -- fired, skipped, missed, merged.
    verdict TEXT NOT NULL,
    -- A word for programs, and one for people.
    rule TEXT,
    reason TEXT,
    -- The run that it made, or was merged into.
    run_identity TEXT,
    -- The version of the job that it was decided under.
    version BIGINT NOT NULL,
    planned_until BIGINT NOT NULL,
    instants BIGINT NOT NULL,
    creation_time BIGINT NOT NULL,
    PRIMARY KEY (job_id, planned_at)
) WITHOUT ROWID;
INSERT INTO fire
SELECT job_id, planned_at, 'outside', CASE verdict WHEN 'skipped' THEN 'skipped' ELSE 'fired' END, NULL, reason, run_identity, 1, planned_at, 1,
    creation_time
FROM fire_of_old;
DROP TABLE fire_of_old;

ALTER TABLE run ADD COLUMN kind TEXT NOT NULL DEFAULT 'block';
-- What it took along from its job: time-out, retries, the request of a callback. JSON.
ALTER TABLE run ADD COLUMN rules TEXT NOT NULL DEFAULT '{}';
ALTER TABLE run ADD COLUMN attempt INTEGER NOT NULL DEFAULT 1;
-- A run that waits: for its next attempt, or behind another run of its job.
ALTER TABLE run ADD COLUMN not_before BIGINT;
ALTER TABLE run ADD COLUMN start_time BIGINT;
ALTER TABLE run ADD COLUMN result TEXT;
-- What its end means to its job has still to be dealt with.
ALTER TABLE run ADD COLUMN follow BOOLEAN NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN retry_of TEXT;
ALTER TABLE run ADD COLUMN idempotency_key TEXT;
-- What a job's actor asks when it begins: which runs of the job are not over?
CREATE INDEX run_open ON run (job_id) WHERE state IN ('pending', 'scheduled', 'running');
CREATE INDEX run_follow ON run (no) WHERE follow = 1;
CREATE UNIQUE INDEX run_key ON run (job_id, idempotency_key) WHERE idempotency_key IS NOT NULL;

-- What was said of a run: by the broker, and by whoever carries it out.
CREATE TABLE run_log (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    run_no BIGINT NOT NULL,
    at BIGINT NOT NULL,
    -- 0 trace, 1 debug, 2 info, 3 warning, 4 error, 5 critical.
    level SMALLINT NOT NULL,
    -- broker, worker, stdout, stderr …
    source TEXT NOT NULL,
    text TEXT NOT NULL
);
CREATE INDEX run_log_run ON run_log (run_no, id);

CREATE TABLE job_group (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    description TEXT,
    create_by TEXT,
    update_by TEXT,
    creation_time BIGINT NOT NULL,
    update_time BIGINT NOT NULL
) WITHOUT ROWID;

-- What happened that somebody may want to hear of: written with what happened, sent afterwards.
CREATE TABLE alert_event (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    -- failed, missed, late, silent, recovered, disabled, test.
    event TEXT NOT NULL,
    job_id TEXT,
    run_identity TEXT,
    at BIGINT NOT NULL,
    -- As JSON.
    detail TEXT NOT NULL,
    -- It is settled whom to tell.
    is_done BOOLEAN NOT NULL
);
CREATE INDEX alert_event_open ON alert_event (id) WHERE is_done = 0;
