-- What the broker did, in steps of three lengths (milliseconds). Each length has a bounded number of rows; see `domain/series`.
CREATE TABLE series (
    step BIGINT NOT NULL,
    at BIGINT NOT NULL,
    content TEXT NOT NULL,
    PRIMARY KEY (step, at)
);
