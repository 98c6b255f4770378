DROP TABLE segment;
