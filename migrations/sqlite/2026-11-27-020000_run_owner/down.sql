DROP INDEX run_owned;
ALTER TABLE run DROP COLUMN owner;
DROP TABLE run_owner;
