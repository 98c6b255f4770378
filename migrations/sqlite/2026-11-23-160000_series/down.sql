DROP TABLE series;
