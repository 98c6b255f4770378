-- The CRC-32 of a block's results in their segment; NULL for results that were stored before there was one.
ALTER TABLE block ADD COLUMN seg_check BIGINT;
