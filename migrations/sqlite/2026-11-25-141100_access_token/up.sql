-- Tokens with a name, beside those of the command line. The text of a token is not stored.
CREATE TABLE access_token (
    name TEXT PRIMARY KEY NOT NULL,
    role TEXT NOT NULL,
    -- SHA-256 of the text, 64 hexadecimal digits.
    hash TEXT NOT NULL UNIQUE,
    -- The groups of jobs that it is limited to, as a JSON array. Absent: all.
    job_groups TEXT,
    expire_time BIGINT,
    create_by TEXT,
    creation_time BIGINT NOT NULL
);
