-- A queued run was one whose not_before was the last of all times.
ALTER TABLE run ADD COLUMN queued BOOLEAN NOT NULL DEFAULT FALSE;
UPDATE run SET queued = (state IN ('pending', 'scheduled', 'running')), not_before = NULL WHERE not_before = 9223372036854775807;
