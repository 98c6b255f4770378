-- Bytes of the bodies in the results of a block, decompressed.
ALTER TABLE block ADD COLUMN bytes BIGINT NOT NULL DEFAULT 0;
