-- Calls that change something: who made them, from where, and their results. A row is stored before its change, or with it.
CREATE TABLE audit_event (
    -- 32 hexadecimal digits in the order of time.
    id TEXT COLLATE "C" PRIMARY KEY NOT NULL,
    at BIGINT NOT NULL,
    -- The name of the token, or of its role. Absent: the broker needs no token.
    caller TEXT COLLATE "C",
    role TEXT COLLATE "C",
    address TEXT COLLATE "C",
    -- What a proxy or a standby says of the caller's address. It is not checked.
    forwarded_for TEXT COLLATE "C",
    operation TEXT COLLATE "C" NOT NULL,
    -- The kind of the object, such as "job".
    kind TEXT COLLATE "C" NOT NULL,
    object TEXT COLLATE "C",
    -- The names of the members in the body, without their values.
    members TEXT COLLATE "C",
    -- Absent: the call has not been answered, or the broker ended before.
    status INTEGER
);
