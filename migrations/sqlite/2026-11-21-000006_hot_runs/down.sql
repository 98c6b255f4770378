DROP INDEX run_ended_badly;
CREATE INDEX run_state ON run (state, no);
