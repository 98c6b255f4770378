ALTER TABLE block DROP COLUMN priority;
