DROP TABLE run_next;
ALTER TABLE plan DROP COLUMN fired_until;
ALTER TABLE plan DROP COLUMN asked_from;
