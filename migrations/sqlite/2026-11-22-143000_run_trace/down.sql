DROP INDEX run_trace;
