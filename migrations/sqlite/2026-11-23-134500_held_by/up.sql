-- Who holds a site: the role of a token; none if no operator holds it, or if the broker has no tokens.
ALTER TABLE site ADD COLUMN held_by TEXT;
