use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
    /// The program's own flag, for all commands.
    #[arg(long)]
    json: bool,
}

fn tell(words: &[&str]) -> Answer {
    let line = Line::try_parse_from([&["next"], words].concat()).unwrap_or_else(|e| panic!("{words:?}: {e}"));
    answer(&line.args, line.json, Timestamp(1_790_000_000_000))
}

#[test]
fn a_fire_a_line() {
    let told = tell(&["30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-28T00:00", "--count", "2"]);
    let expected =
        "2026-03-28T02:30:00+01:00\n2026-03-29T03:00:00+02:00  local time 2026-03-29T02:30:00 is missing; first instant after the gap\n";
    assert_eq!(told.out, expected);
    assert_eq!(told.code, 0);
    assert_eq!(told.err, "# 0 30 2 * * * *\n# at 02:30 every day\n# zone Europe/Berlin, gap after, fold first\n");
}

#[test]
fn five_from_now_in_utc() {
    let told = tell(&["*/5 * * * *"]);
    assert_eq!(told.out.lines().next(), Some("2026-09-21T14:15:00+00:00"));
    assert_eq!(told.out.lines().count(), 5);
}

#[test]
fn skipped_times_do_not_stand_among_the_fires() {
    let told = tell(&["30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-29", "--gap", "skip", "-n", "1"]);
    assert_eq!(told.out, "2026-03-30T02:30:00+02:00\n");
    assert!(
        told.err.ends_with("# the clock jumps at 2026-03-29T03:00:00+02:00: local time 2026-03-29T02:30:00 is missing and is skipped\n")
    );
}

#[test]
fn rules_and_dialect_are_passed_on() {
    let autumn = ["30 2 * * *", "--zone=Europe/Berlin", "--after=2026-10-25", "-n1"];
    assert!(tell(&[&autumn[..], &["--fold", "second"]].concat()).out.starts_with("2026-10-25T02:30:00+01:00  local time comes twice"));
    assert!(tell(&["0 0 12 ? * 1", "--dialect", "quartz", "-n", "1"]).out.starts_with("2026-09-27T12:00:00"));
}

#[test]
fn json_has_it_all() {
    let told = tell(&["30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-29T00:00:00+01:00", "--count", "1", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&told.out).unwrap();
    let expected = json!({
        "cron": "30 2 * * *",
        "dialect": "crontab",
        "understood": "0 30 2 * * * *",
        "description": "at 02:30 every day",
        "zone": "Europe/Berlin",
        "gap": "after",
        "fold": "first",
        "fires": [{
            "at": "2026-03-29T03:00:00+02:00",
            "utc": "2026-03-29T01:00:00Z",
            "epochMs": 1_774_746_000_000_i64,
            "note": "local time 2026-03-29T02:30:00 is missing; first instant after the gap",
        }],
        "missing": [],
    });
    assert_eq!(document, expected);
    assert_eq!((told.err.as_str(), told.code), ("", 0));
    let skipped = tell(&["30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-29", "--gap", "skip", "-n", "1", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&skipped.out).unwrap();
    assert_eq!(document["missing"][0]["local"], "2026-03-29T02:30:00");
    assert_eq!(document["fires"][0]["note"], serde_json::Value::Null);
}

#[test]
fn an_invalid_expression_is_pointed_at() {
    let told = tell(&["0 24 * * *"]);
    assert_eq!(told.code, 2);
    assert_eq!(told.out, "");
    assert_eq!(told.err, "webloom: \"0 24 * * *\": the hour must be 0 to 23, not 24\n\n0 24 * * *\n  ^\n");
    assert_eq!(tell(&["-5 * * * *"]).code, 2);
    assert_eq!(tell(&["* * * * *", "--after", "tomorrow"]).code, 2);
    assert_eq!(tell(&["* * * * *", "--after", "-5"]).code, 0);
}

#[test]
fn wrong_flags_are_refused() {
    for words in [
        &["* * * * *", "--zone", "Mars/Base"][..],
        &["* * * * *", "--count", "0"],
        &["* * * * *", "--count", "10001"],
        &["* * * * *", "--gap", "never"],
        &["* * * * *", "--fold", "never"],
        &["* * * * *", "--dialect", "vixie"],
        &[],
    ] {
        assert_eq!(Line::try_parse_from([&["next"], words].concat()).unwrap_err().exit_code(), 2, "{words:?}");
    }
}

#[test]
fn never_and_not_often_enough_are_told() {
    let never = tell(&["0 0 30 2 *"]);
    assert_eq!((never.code, never.out.as_str()), (1, ""));
    assert!(never.err.ends_with("webloom: \"0 0 30 2 *\" never fires after 2026-09-21T14:13:20+00:00\n"), "{}", never.err);
    let few = tell(&["0 0 0 1 1 ? 2027,2028"]);
    assert_eq!((few.code, few.out.lines().count()), (0, 2));
    assert!(few.err.ends_with("# only 2 fires left; none follows until the end of 2099\n"), "{}", few.err);
    let json = tell(&["0 0 30 2 *", "--json"]);
    assert_eq!(json.code, 1);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&json.out).unwrap()["fires"], json!([]));
}
