-- The priority of the requests of a block, from -100 to 100: the higher one is dispatched first.
ALTER TABLE block ADD COLUMN priority SMALLINT NOT NULL DEFAULT 0;
