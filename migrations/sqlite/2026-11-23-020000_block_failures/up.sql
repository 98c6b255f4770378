-- The requests of a block that failed, as JSON: the results themselves go when they are acknowledged. A block without failures has no row.
CREATE TABLE block_failure (
    "key" INTEGER NOT NULL PRIMARY KEY,
    entries BLOB NOT NULL
);
