//! Parsing, and formatting the result.

use super::*;

#[test]
fn seven_fields_in_crontab_numbers() {
    for (text, understood) in [
        ("* * * * *", "0 * * * * * *"),
        ("5 4 * * sun", "0 5 4 * * 0 *"),
        ("5 4 * * 7", "0 5 4 * * 0 *"),
        ("05 08 01 01 *", "0 5 8 1 1 * *"),
        ("*/5 * ? * ?", "0 */5 * * * * *"),
        ("5/15 * * * *", "0 5-59/15 * * * * *"),
        ("0 22-4 * * FRI-MON", "0 0 22-4 * * 5-1 *"),
        ("0 0 * * 5-7", "0 0 0 * * 5-0 *"),
        ("0 0 * * 0-7", "0 0 0 * * 0-6 *"),
        ("0 0 * * 7-2", "0 0 0 * * 0-2 *"),
        ("0 0 L,l-3,LW,l-2w,15w * FRIl,sun#2,7L", "0 0 0 L,L-3,LW,L-2W,15W * 5L,0#2,0L *"),
        ("0 0 L-0 jan,February Thursday", "0 0 0 L 1,2 4 *"),
        ("1-1 */1 * * *", "0 1 * * * * *"),
        ("10 0 0 1 1 ? 2030-2040/5", "10 0 0 1 1 * 2030-2040/5"),
        (" \t0  0\t* * *\r\n", "0 0 0 * * * *"),
        ("@daily", "0 0 0 * * * *"),
        (" @WEEKLY ", "0 0 0 * * 0 *"),
        ("@yearly", "0 0 0 1 1 * *"),
        ("@Monthly", "0 0 0 1 * * *"),
        ("@hourly", "0 0 * * * * *"),
    ] {
        assert_eq!(cron(text).understood(), understood, "{text}");
        assert_eq!(cron(text).text(), text);
    }
    for (text, understood) in [
        ("0 0 12 ? * 1", "0 0 12 * * 0 *"),
        ("0 0 12 ? * 2-6", "0 0 12 * * 1-5 *"),
        ("0 0 12 ? * 1-7", "0 0 12 * * 0-6 *"),
        ("0 0 12 ? * 7-1", "0 0 12 * * 6-0 *"),
        ("0 0 12 ? * 6L", "0 0 12 * * 5L *"),
        ("0 0 12 ? * L", "0 0 12 * * 6 *"),
        ("0 0 12 ? * 6#3", "0 0 12 * * 5#3 *"),
        ("0 0 12 ? * FRI#3", "0 0 12 * * 5#3 *"),
        ("@weekly", "0 0 0 * * 0 *"),
    ] {
        assert_eq!(quartz(text).understood(), understood, "{text}");
    }
}

#[test]
fn in_short_english() {
    for (text, said) in [
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/5 * * * *", "every 5 minutes"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("0 * * * *", "at minute 0 of every hour"),
        ("5-10 9-17 * * MON-FRI", "at minute 5 to 10 of hour 9 to 17 on Monday to Friday"),
        ("*/5 9-17 * * *", "every 5 minutes of hour 9 to 17"),
        ("30 2 * * *", "at 02:30 every day"),
        ("15 30 2 * * *", "at 02:30:15 every day"),
        ("0 8,20 * * *", "at 08:00 and 20:00 every day"),
        ("0 0 L * *", "at 00:00 on the last day of the month"),
        ("0 0 1,15 * *", "at 00:00 on day 1 and day 15 of the month"),
        ("0 0 LW,15W * *", "at 00:00 on the last weekday (Monday to Friday) and the weekday nearest to day 15 of the month"),
        ("0 0 13 * FRI", "at 00:00 on day 13 of the month or on Friday"),
        ("0 0 * * FRI#2,SUNL", "at 00:00 on the second Friday and the last Sunday"),
        ("0 0 1 JAN,JUL *", "at 00:00 on day 1 of the month in January and July"),
        ("0 0 0 1 1 ? 2030", "at 00:00 on day 1 of the month in January in 2030"),
    ] {
        assert_eq!(cron(text).describe(), said, "{text}");
    }
    assert_eq!(quartz("0 0 0 13 * FRI").describe(), "at 00:00 on day 13 of the month, only if that is Friday");
    assert_eq!(quartz("0 0 9 ? * 2-6").describe(), "at 09:00 on Monday to Friday");
}

#[test]
fn dialects_have_names() {
    assert_eq!("quartz".parse(), Ok(Dialect::Quartz));
    assert_eq!("crontab".parse(), Ok(Dialect::default()));
    assert!("vixie".parse::<Dialect>().is_err());
    assert_eq!(serde_json::to_string(&Dialect::Quartz).unwrap(), "\"quartz\"");
}

#[test]
fn what_can_never_fire() {
    let from = Timestamp(1_790_000_000_000);
    let texts = ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 31W 4 *", "0 0 L-30 2 *", "0 0 30W 2 *", "0 0 0 29 2 ? 2027", "0 0 0 1 1 ? 2026"];
    for text in texts {
        assert_eq!(cron(text).next(&zone("Europe/Berlin"), ZoneRules::default(), from), None, "{text}");
    }
    for text in ["* * * * *", "0 0 29 2 *", "0 0 * 2 1#5", "0 0 0 1 1 ? 2099", "0 0 30 2 MON", "0 0 L-27 2 *"] {
        assert!(cron(text).next(&zone("Europe/Berlin"), ZoneRules::default(), from).is_some(), "{text}");
    }
    let end = zone("UTC").instant("2099-12-31T23:59:59Z").unwrap();
    assert_eq!(cron("* * * * * *").next(&Zone::utc(), ZoneRules::default(), end), None);
    for far in [Timestamp(i64::MAX), Timestamp(i64::MIN), Timestamp(0)] {
        let next = cron("0 0 1 1 *").next(&zone("America/New_York"), ZoneRules::default(), far);
        assert_eq!(next.is_some(), far.0 <= 0, "{far:?}");
    }
}
