-- What people call a node; an agent sends its host's name unless its owner chose another.
ALTER TABLE node ADD COLUMN name TEXT;
