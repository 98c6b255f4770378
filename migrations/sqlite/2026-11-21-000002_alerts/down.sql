DROP INDEX job_silent;
ALTER TABLE plan DROP COLUMN told_silent;
ALTER TABLE plan DROP COLUMN ended_well;
DROP INDEX alert_event_late;
DROP TABLE alert_delivery;
DROP TABLE alert_channel;
