use super::*;

#[test]
fn zones_are_found_by_name() {
    for (name, known) in
        [("europe/berlin", "Europe/Berlin"), ("UTC", "UTC"), ("utc", "UTC"), ("Etc/GMT-2", "Etc/GMT-2"), ("US/Eastern", "US/Eastern")]
    {
        assert_eq!(Zone::named(name).unwrap().name(), known);
    }
    assert_eq!(Zone::utc().name(), "UTC");
    assert_eq!(Zone::named("UTC").unwrap().offset_seconds(Timestamp(0)), 0);
    for (name, hint) in [
        ("berlin", Some("Europe/Berlin")),
        ("New York", Some("America/New_York")),
        ("Mars/Base", None),
        ("", None),
        ("Etc/Unknown", None),
        ("+02:00", None),
        ("CET-1CEST", None),
    ] {
        let error = Zone::named(name).unwrap_err();
        assert_eq!(error.hint.as_deref(), hint, "{name}");
        assert!(error.to_string().contains("is not a time zone"), "{error}");
    }
}

#[test]
fn the_database_is_the_one_in_the_program() {
    assert!(Zone::database_version().starts_with("20"), "{}", Zone::database_version());
    assert!(Zone::all_names().count() > 550);
}

#[test]
fn instants_are_read() {
    let berlin = Zone::named("Europe/Berlin").unwrap();
    for (text, shown) in [
        ("2026-03-29T02:30:00+01:00", "2026-03-29T03:30:00+02:00"),
        ("2026-03-29T01:30:00Z", "2026-03-29T03:30:00+02:00"),
        ("2026-07-01T12:00", "2026-07-01T12:00:00+02:00"),
        ("2026-07-01 12:00:07", "2026-07-01T12:00:07+02:00"),
        ("2026-07-01", "2026-07-01T00:00:00+02:00"),
        // In a gap, and the first of two.
        ("2026-03-29T02:30", "2026-03-29T03:30:00+02:00"),
        ("2026-10-25T02:30", "2026-10-25T02:30:00+02:00"),
        ("0", "1970-01-01T01:00:00+01:00"),
        ("-1000", "1970-01-01T00:59:59+01:00"),
        (" 1774746000000 ", "2026-03-29T03:00:00+02:00"),
    ] {
        assert_eq!(berlin.rfc3339(berlin.instant(text).unwrap()), shown, "{text}");
    }
    assert_eq!(berlin.instant("1970-01-01T00:00:00.123Z"), Ok(Timestamp(123)));
    for text in ["", "-", "tomorrow", "2026-13-01", "2026-02-30T00:00", "99999999999999999999", "2026-07-01T25:00"] {
        assert!(berlin.instant(text).is_err(), "{text}");
    }
}

#[test]
fn offsets_with_seconds_are_written_out() {
    let monrovia = Zone::named("Africa/Monrovia").unwrap();
    assert_eq!(monrovia.rfc3339(Timestamp(0)), "1969-12-31T23:15:30-00:44:30");
    assert_eq!(Zone::named("Asia/Kathmandu").unwrap().rfc3339(Timestamp(1_790_000_000_000)), "2026-09-21T19:58:20+05:45");
}

#[test]
fn rules_have_names() {
    for rule in [GapRule::Skip, GapRule::After, GapRule::Shift] {
        assert_eq!(rule.name().parse(), Ok(rule));
        assert_eq!(serde_json::to_string(&rule).unwrap(), format!("{:?}", rule.name()));
    }
    for rule in [FoldRule::First, FoldRule::Second, FoldRule::Both] {
        assert_eq!(rule.name().parse(), Ok(rule));
        assert_eq!(serde_json::to_string(&rule).unwrap(), format!("{:?}", rule.name()));
    }
    assert!("never".parse::<GapRule>().is_err() && "never".parse::<FoldRule>().is_err());
    assert_eq!(serde_json::from_str::<ZoneRules>("{\"gap\":\"shift\"}").unwrap(), ZoneRules { gap: Some(GapRule::Shift), fold: None });
}

/// Far from any known date the offset is that of the nearest known date, and nothing panics.
#[test]
fn no_instant_is_too_far() {
    let berlin = Zone::named("Europe/Berlin").unwrap();
    for at in [i64::MIN, i64::MAX, -62_200_000_000_000, 253_402_300_800_000] {
        assert!(berlin.offset_seconds(Timestamp(at)).abs() < 86_400);
        assert!(!berlin.rfc3339(Timestamp(at)).is_empty());
    }
    assert_eq!(berlin.change_after(i64::MAX / 1000), None);
}
