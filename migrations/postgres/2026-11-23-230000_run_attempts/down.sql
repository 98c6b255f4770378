DROP TABLE run_attempt;
