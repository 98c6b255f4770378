ALTER TABLE block DROP COLUMN seg_check;
