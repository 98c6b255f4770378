-- To which token the id of a node or a worker belongs: an HMAC under the token, which tells nothing of it.
CREATE TABLE id_owner (
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    owner TEXT NOT NULL,
    claim_time BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);
