-- The pages ask for the latest events of one kind.
CREATE INDEX alert_event_kind ON alert_event (event, id);
