DROP TABLE job_hook;
