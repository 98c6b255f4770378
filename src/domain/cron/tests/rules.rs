//! Rules for skipped and repeated local times: defaults, notes, marks in the preview.

use super::*;

const NONE: ZoneRules = ZoneRules { gap: None, fold: None };

/// The notes of the next fires.
fn notes(text: &str, zone_name: &str, rules: ZoneRules, after: &str, count: usize) -> Vec<String> {
    let (cron, zone) = (cron(text), zone(zone_name));
    let lines = cron.preview(&zone, rules, zone.instant(after).unwrap(), count);
    let say = |line| match line {
        PreviewLine::Fire(fire) => format!("{} {}", zone.rfc3339(fire.at), fire.note.map_or(String::new(), |note: Note| note.to_string())),
        PreviewLine::Missing { at, first } => format!("missing {first} at {}", zone.rfc3339(at)),
    };
    lines.into_iter().map(|line| say(line).trim().to_owned()).collect()
}

#[test]
fn a_star_in_the_hour_goes_by_elapsed_time() {
    use FoldRule::{Both, First};
    use GapRule::{After, Skip};
    for (text, expected) in [
        ("30 * * * *", (Skip, Both)),
        ("30 */2 * * *", (Skip, Both)),
        ("0 30 *,5 * * *", (Skip, Both)),
        ("@hourly", (Skip, Both)),
        ("30 2 * * *", (After, First)),
        ("* 2 * * *", (After, First)),
        ("30 0-23 * * *", (After, First)),
        ("30 0/2 * * *", (After, First)),
        ("@daily", (After, First)),
    ] {
        assert_eq!(cron(text).rules(NONE), expected, "{text}");
        let chosen = rules(GapRule::Shift, FoldRule::Second);
        assert_eq!(cron(text).rules(chosen), (GapRule::Shift, FoldRule::Second), "{text}");
        assert_eq!(cron(text).rules(ZoneRules { fold: None, ..chosen }), (GapRule::Shift, expected.1), "one of both chosen: {text}");
    }
}

#[test]
fn a_gap_leaves_a_note() {
    let (text, name, after) = ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00");
    let with = |gap| notes(text, name, ZoneRules { gap: Some(gap), fold: None }, after, 1);
    assert_eq!(with(GapRule::After), ["2026-03-29T03:00:00+02:00 local time 2026-03-29T02:30:00 is missing; first instant after the gap"]);
    assert_eq!(with(GapRule::Shift), ["2026-03-29T03:30:00+02:00 local time 2026-03-29T02:30:00 is missing; shifted by the gap"]);
    // A time that matches at the end of the gap itself was not moved there.
    let after_gap = ZoneRules { gap: Some(GapRule::After), fold: None };
    assert_eq!(notes("0 3 * * *", name, after_gap, after, 1), ["2026-03-29T03:00:00+02:00"]);
    assert_eq!(with(GapRule::Skip), ["missing 2026-03-29T02:30:00 at 2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]);
}

#[test]
fn a_gap_is_marked_once_and_only_if_something_is_lost() {
    assert_eq!(
        notes("*/20 * * * *", "Europe/Berlin", NONE, "2026-03-29T01:30", 3),
        [
            "2026-03-29T01:40:00+01:00",
            "missing 2026-03-29T02:00:00 at 2026-03-29T03:00:00+02:00",
            "2026-03-29T03:00:00+02:00",
            "2026-03-29T03:20:00+02:00"
        ]
    );
    let skip = ZoneRules { gap: Some(GapRule::Skip), fold: None };
    assert_eq!(notes("0 4 * * *", "Europe/Berlin", skip, "2026-03-28T12:00", 2).len(), 2);
    // Its very last fire is lost.
    assert_eq!(
        notes("0 30 2 29 3 ? 2026", "Europe/Berlin", skip, "2026-01-01", 3),
        ["missing 2026-03-29T02:30:00 at 2026-03-29T03:00:00+02:00"]
    );
}

#[test]
fn a_fold_leaves_a_note() {
    let (text, name, after) = ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00");
    let with = |fold, count| notes(text, name, ZoneRules { gap: None, fold: Some(fold) }, after, count);
    assert_eq!(with(FoldRule::First, 2), ["2026-10-25T02:30:00+02:00 local time comes twice; the first", "2026-10-26T02:30:00+01:00"]);
    assert_eq!(with(FoldRule::Second, 1), ["2026-10-25T02:30:00+01:00 local time comes twice; the second"]);
    assert_eq!(
        with(FoldRule::Both, 2),
        ["2026-10-25T02:30:00+02:00 local time comes twice; the first", "2026-10-25T02:30:00+01:00 local time comes twice; the second"]
    );
}

#[test]
fn what_falls_together_fires_once() {
    // Three local times in the gap, and one at its end.
    let after = ZoneRules { gap: Some(GapRule::After), fold: None };
    assert_eq!(
        fires("0,20,40 2-3 * * *", "Europe/Berlin", after, "2026-03-29T00:00", 3),
        ["2026-03-29T03:00:00+02:00", "2026-03-29T03:20:00+02:00", "2026-03-29T03:40:00+02:00"]
    );
    // 02:15 moves to 03:15, where a fire exists already; 02:45 moves between fires.
    let shift = ZoneRules { gap: Some(GapRule::Shift), fold: None };
    assert_eq!(
        fires("15,45 2,3 * * SUN", "Europe/Berlin", shift, "2026-03-29T00:00", 3),
        ["2026-03-29T03:15:00+02:00", "2026-03-29T03:45:00+02:00", "2026-04-05T02:15:00+02:00"]
    );
    assert_eq!(
        fires("45 2 * * *", "Europe/Berlin", shift, "2026-03-29T00:00", 2),
        ["2026-03-29T03:45:00+02:00", "2026-03-30T02:45:00+02:00"]
    );
    // The gap's last second.
    assert_eq!(fires("59 59 2 * * *", "Europe/Berlin", shift, "2026-03-29T03:59:58", 1), ["2026-03-29T03:59:59+02:00"]);
    assert_eq!(notes("15 2,3 * * *", "Europe/Berlin", shift, "2026-03-29", 1), ["2026-03-29T03:15:00+02:00"]);
    // A whole day is missing: its fire moves to the next day, which has its own.
    assert_eq!(
        fires("0 9 * * *", "Pacific/Apia", shift, "2011-12-29T00:00", 3),
        ["2011-12-29T09:00:00-10:00", "2011-12-31T09:00:00+14:00", "2012-01-01T09:00:00+14:00"]
    );
}

/// Stepping from within the second hour must not return past fires.
#[test]
fn the_second_hour_does_not_go_back() {
    let berlin = zone("Europe/Berlin");
    for text in ["*/15 * * * *", "30 2 * * *", "0 30 2 25 10 *", "* * * * * *"] {
        for fold in [FoldRule::First, FoldRule::Second, FoldRule::Both] {
            let (cron, begin) = (cron(text), berlin.instant("2026-10-25T01:00:00Z").unwrap());
            for minute in -70..70 {
                for ms in [-1, 0, 1, 500, 999] {
                    let at = begin.plus_ms(minute * 60_000 + ms);
                    let next = cron.next(&berlin, ZoneRules { gap: None, fold: Some(fold) }, at).unwrap();
                    assert!(next.at > at && next.at.0 % 1000 == 0, "{text}: {at} -> {}", next.at);
                }
            }
        }
    }
    // With seconds, first occurrences only: from the last of them across the second hour.
    let first = ZoneRules { gap: None, fold: Some(FoldRule::First) };
    let next = cron("* * * * * *").next(&berlin, first, berlin.instant("2026-10-25T02:59:59+02:00").unwrap()).unwrap();
    assert_eq!(berlin.rfc3339(next.at), "2026-10-25T03:00:00+01:00");
}

#[test]
fn a_preview_may_come_to_an_end() {
    let lines = cron("0 0 0 1 1 ? 2027-2029").preview(&Zone::utc(), NONE, Timestamp(1_790_000_000_000), 10);
    assert_eq!(lines.len(), 3);
    assert!(cron("0 0 30 2 *").preview(&zone("Europe/Berlin"), NONE, Timestamp(0), 10).is_empty());
    assert!(cron("* * * * *").preview(&Zone::utc(), NONE, Timestamp(0), 0).is_empty());
}
