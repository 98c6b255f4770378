-- Every run paid three times for an index by state: when it was made, and twice when it ended. Runs that are not over are
-- found by run_open; of those that are over, the ones somebody looks for are few.
DROP INDEX run_state;
CREATE INDEX run_ended_badly ON run (state, no) WHERE state IN ('failed', 'stopped');
