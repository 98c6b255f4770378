DROP TABLE broker;
DROP TABLE leader;
