DROP TABLE block_failure;
