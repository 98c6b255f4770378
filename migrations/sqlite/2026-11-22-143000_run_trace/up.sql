-- Runs are found by their trace. Most have a trace of their own, which is their identity: these need no second index.
CREATE INDEX run_trace ON run (trace_id) WHERE trace_id <> identity;
