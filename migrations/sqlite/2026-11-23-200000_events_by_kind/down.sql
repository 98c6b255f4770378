DROP INDEX alert_event_kind;
