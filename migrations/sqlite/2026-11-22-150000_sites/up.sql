-- The site that the requests of a block go to; none where no pace is kept.
ALTER TABLE block ADD COLUMN site TEXT;

-- What is known of the pace of a site, as long as it is out of the ordinary.
CREATE TABLE site (
    name TEXT NOT NULL PRIMARY KEY,
    state BLOB NOT NULL,
    update_time BIGINT NOT NULL
);

-- What the robots.txt of an origin says to one user agent.
CREATE TABLE robots (
    origin TEXT NOT NULL,
    agent TEXT NOT NULL,
    rules TEXT NOT NULL,
    expire_time BIGINT NOT NULL,
    PRIMARY KEY (origin, agent)
);
