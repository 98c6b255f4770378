-- Packages that the broker keeps, and what an operator wants of a node.

-- The bytes stand in the folder `<database>-packages`, in a file named by their SHA-256; a row is written after its file.
CREATE TABLE package (
    sha256 TEXT NOT NULL PRIMARY KEY,
    size BIGINT NOT NULL,
    name TEXT,
    media_type TEXT NOT NULL,
    create_by TEXT,
    creation_time BIGINT NOT NULL
) WITHOUT ROWID;

-- It gets nothing new and ends when it has nothing left.
ALTER TABLE node ADD COLUMN is_draining BOOLEAN NOT NULL DEFAULT 0;
-- It is told to end until it is gone.
ALTER TABLE node ADD COLUMN is_leaving BOOLEAN NOT NULL DEFAULT 0;
-- Why it is disabled, draining or leaving.
ALTER TABLE node ADD COLUMN reason TEXT;

-- Lines of output that were taken, whether they are kept or not.
ALTER TABLE run_instance ADD COLUMN lines BIGINT NOT NULL DEFAULT 0;
-- Why it is asked to end, if somebody wants it to.
ALTER TABLE run_instance ADD COLUMN exit_reason TEXT;
