//! Invalid expressions: the field, the character and the reason of the error.

use super::*;

/// What is wrong with the returned error, if anything.
fn fault(text: &str, dialect: Dialect, field: &str, position: usize, why: &str) -> Option<String> {
    let error = match Cron::parse(text, dialect) {
        Ok(cron) => return Some(format!("{text:?} was read as {}", cron.understood())),
        Err(error) => error,
    };
    let (shown, caret) = error.pointer().split_once('\n').map(|(a, b)| (a.chars().count(), b.len())).unwrap();
    let right =
        (error.field, error.position) == (field, position) && error.detail.contains(why) && caret == position + 1 && shown >= position;
    (!right).then(|| format!("{text:?}, {field:?} {position} {why:?}: {error:?}"))
}

fn refused(text: &str, dialect: Dialect, field: &str, position: usize, why: &str) {
    assert_eq!(fault(text, dialect, field, position, why), None);
}

#[test]
fn the_fault_is_pointed_at() {
    let cases = [
        // The number of fields.
        ("", "", 0, "empty"),
        (" \t ", "", 0, "empty"),
        ("*", "", 1, "it has 1 field, and"),
        ("* * * *", "", 7, "4 fields"),
        ("* * * * * * * *", "", 14, "8 fields"),
        ("0 0 * * * /usr/bin/true", "day of week", 10, "missing before /"),
        ("0 0 * * * root run-parts x", "", 25, "8 fields"),
        // Out of range.
        ("60 * * * *", "minute", 0, "the minute must be 0 to 59, not 60"),
        ("* 24 * * *", "hour", 2, "the hour must be 0 to 23, not 24"),
        ("* * 0 * *", "day of month", 4, "the day of month must be 1 to 31, not 0"),
        ("* * 32 * *", "day of month", 4, "32"),
        ("* * * 0 *", "month", 6, "the month must be 1 to 12, not 0"),
        ("* * * 13 *", "month", 6, "13"),
        ("* * * * 8", "day of week", 8, "the day of week must be 0 to 7, not 8"),
        ("60 * * * * *", "second", 0, "60"),
        ("0 60 * * * *", "minute", 2, "60"),
        ("0 0 0 1 1 ? 1969", "year", 12, "the year must be 1970 to 2099, not 1969"),
        ("0 0 0 1 1 ? 2100", "year", 12, "2100"),
        ("99999999999999999999 * * * *", "minute", 0, "must be 0 to 59, not 999"),
        ("65536 * * * *", "minute", 0, "the minute must be 0 to 59, not 65536"),
        ("1,2,60 * * * *", "minute", 4, "60"),
        ("0 1-24 * * *", "hour", 4, "24"),
        ("0 0 1-32/2 * *", "day of month", 6, "32"),
        // Steps.
        ("*/0 * * * *", "minute", 2, "the step must be 1 to 60, not 0"),
        ("*/00 * * * *", "minute", 2, "the step must be 1 to 60, not 0"),
        ("*/61 * * * *", "minute", 2, "must be 1 to 60, not 61"),
        ("* */25 * * *", "hour", 4, "must be 1 to 24"),
        ("*/99999999 * * * *", "minute", 2, "must be 1 to 60"),
        ("*/ * * * *", "minute", 2, "must be a number from 1 to 60"),
        ("*/x * * * *", "minute", 2, "must be a number from 1 to 60"),
        ("*/-5 * * * *", "minute", 2, "must be a number from 1 to 60"),
        ("*/1/2 * * * *", "minute", 2, "one step"),
        ("/5 * * * *", "minute", 0, "missing before /"),
        ("1-5/0 * * * *", "minute", 4, "the step must be 1 to 60, not 0"),
        ("0 0 ?/2 * *", "day of month", 4, "alone"),
        // Lists and ranges.
        (",1 * * * *", "minute", 0, "empty"),
        ("1, * * * *", "minute", 2, "empty"),
        ("1,,2 * * * *", "minute", 2, "empty"),
        ("1, 2 * * * * *", "second", 2, "empty"),
        ("-5 * * * *", "minute", 0, "missing"),
        ("5- * * * *", "minute", 2, "missing"),
        ("1-2-3 * * * *", "minute", 3, "two ends"),
        ("1--3 * * * *", "minute", 2, "two ends"),
        ("*-5 * * * *", "minute", 0, "* must stand alone"),
        ("5-* * * * *", "minute", 2, "* must stand alone"),
        ("** * * * *", "minute", 0, "* must stand alone"),
        ("*5 * * * *", "minute", 0, "* must stand alone"),
        ("0 0 0 1 1 ? 2030-2020", "year", 12, "ends before it begins"),
        ("0 0 0 1 1 ? 2030-2020/2", "year", 12, "ends before it begins"),
        // Signs and letters.
        ("+5 * * * *", "minute", 0, "'+'"),
        ("1.5 * * * *", "minute", 1, "'.'"),
        ("5x * * * *", "minute", 0, "must be"),
        ("0x5 * * * *", "minute", 0, "must be"),
        ("é * * * *", "minute", 0, "'é'"),
        ("* \u{661} * * *", "hour", 2, "has no meaning"),
        ("0\u{a0}0 * * * *", "minute", 1, "has no meaning"),
        ("0 0\n* * * *", "hour", 3, "has no meaning"),
        ("0~30 * * * *", "minute", 1, "~"),
        ("H * * * *", "minute", 0, "hash"),
        ("? * * * *", "minute", 0, "only for day of month"),
        ("* ? * * *", "hour", 2, "only for day of month"),
        ("* * * ? *", "month", 6, "only for day of month"),
        ("0 0 0 * * * ?", "year", 12, "only for day of month"),
        ("* * ?,1 * *", "day of month", 4, "? must stand alone"),
        ("* * * * MON,?", "day of week", 12, "? must stand alone"),
        ("* * * FOO *", "month", 6, "or a name like JAN"),
        ("* * * * FOO", "day of week", 8, "or a name like MON"),
        ("* * * MON *", "month", 6, "of another field"),
        ("* * * * JAN", "day of week", 8, "of another field"),
        ("MON * * * *", "minute", 0, "of another field"),
        ("* * JAN * *", "day of month", 4, "of another field"),
        ("* * * JANU *", "month", 6, "or a name"),
        ("* * * JAN-FOO *", "month", 10, "or a name"),
        // L, W and #.
        ("L * * * *", "minute", 0, "only for day of month and day of week"),
        ("* L * * *", "hour", 2, "only for day of month and day of week"),
        ("* * * L *", "month", 6, "only for day of month and day of week"),
        ("0 0 0 * * * L", "year", 12, "only for day of month and day of week"),
        ("* 5W * * *", "hour", 2, "only for day of month and day of week"),
        ("* * * 5#2 *", "month", 6, "only for day of month and day of week"),
        ("0 0 * * L", "day of week", 8, "needs a weekday before it"),
        ("0 0 * * 15W", "day of week", 10, "W is only for day of month"),
        ("0 0 5#2 * *", "day of month", 5, "# is only for day of week"),
        ("0 0 5L * *", "day of month", 5, "L must be first"),
        ("0 0 FRIL * *", "day of month", 7, "L must be first"),
        ("0 0 1-L * *", "day of month", 6, "L must be first"),
        ("0 0 L-31 * *", "day of month", 6, "so far"),
        ("0 0 L- * *", "day of month", 4, "is not L, L-3"),
        ("0 0 L3 * *", "day of month", 4, "is not L, L-3"),
        ("0 0 L/2 * *", "day of month", 4, "is not L, L-3"),
        ("0 0 L-1-2 * *", "day of month", 4, "is not L, L-3"),
        ("0 0 LL * *", "day of month", 4, "is not L, L-3"),
        ("0 0 W * *", "day of month", 4, "needs a day"),
        ("0 0 0W * *", "day of month", 4, "the day of month must be 1 to 31, not 0"),
        ("0 0 32W * *", "day of month", 4, "32"),
        ("0 0 1-15W * *", "day of month", 4, "one day"),
        ("0 0 W15 * *", "day of month", 4, "must be"),
        ("0 0 WL * *", "day of month", 5, "L must be first"),
        ("0 0 * * 8L", "day of week", 8, "the day of week must be 0 to 7, not 8"),
        ("0 0 * * MON-FRIL", "day of week", 11, "one weekday"),
        ("0 0 * * */2L", "day of week", 8, "one weekday"),
        ("0 0 * * 5#0", "day of week", 10, "must be 1 to 5"),
        ("0 0 * * 5#6", "day of week", 10, "must be 1 to 5"),
        ("0 0 * * 5#", "day of week", 10, "must be 1 to 5"),
        ("0 0 * * 5#01", "day of week", 10, "must be 1 to 5"),
        ("0 0 * * 5#1#2", "day of week", 10, "must be 1 to 5"),
        ("0 0 * * #2", "day of week", 8, "missing"),
        ("0 0 * * 8#1", "day of week", 8, "the day of week must be 0 to 7, not 8"),
        ("0 0 * * MON-FRI#2", "day of week", 11, "one weekday"),
        ("0 0 * * 1,5#9", "day of week", 12, "must be 1 to 5"),
        // Names for whole expressions.
        ("@", "", 0, "unknown name"),
        ("@fortnightly", "", 0, "unknown name"),
        ("@reboot", "", 0, "machine starts"),
        ("@every 5m", "", 0, "interval"),
        ("@every_minute", "", 0, "interval"),
        ("  @daily 5", "", 9, "nothing may follow @daily"),
        ("TZ=UTC 0 0 * * *", "", 0, "time zone must be set"),
        ("CRON_TZ=Europe/Paris * * * * *", "", 0, "time zone must be set"),
    ];
    let faults: Vec<_> =
        cases.iter().filter_map(|(text, field, position, why)| fault(text, Dialect::Crontab, field, *position, why)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn blanks_count_in_the_place() {
    refused("  0\t\t24  * * *", Dialect::Crontab, "hour", 5, "24");
    refused("0 0 * * 8 ", Dialect::Crontab, "day of week", 8, "8");
    let error = Cron::parse("0\t24 * * *", Dialect::Crontab).unwrap_err();
    assert_eq!(error.pointer(), "0 24 * * *\n  ^");
    assert_eq!(error.to_string(), "the hour must be 0 to 23, not 24");
}

#[test]
fn quartz_counts_from_sunday_as_1() {
    for (text, position, why) in [
        ("0 0 12 ? * 0", 11, "the day of week must be 1 to 7, not 0"),
        ("0 0 12 ? * 8", 11, "the day of week must be 1 to 7, not 8"),
        ("0 0 12 ? * 0-6", 11, "the day of week must be 1 to 7, not 0"),
        ("0 0 12 ? * 0#1", 11, "the day of week must be 1 to 7, not 0"),
        ("0 0 12 ? * ?", 11, "one of the two"),
        ("0 12 ? * ?", 9, "one of the two"),
    ] {
        refused(text, Dialect::Quartz, if why.contains('?') { "" } else { "day of week" }, position, why);
    }
}

#[test]
fn too_long_is_refused_and_cut() {
    let text = "1,".repeat(2000) + "1 * * * *";
    refused(&text, Dialect::Crontab, "", 0, "at most 1000");
    let error = Cron::parse(&text, Dialect::Crontab).unwrap_err();
    assert_eq!(error.text.len(), 1000);
    let odd = Cron::parse(&format!("0 {} * * *", "9".repeat(500)), Dialect::Crontab).unwrap_err();
    assert!(odd.to_string().len() < 200, "{odd}");
}
