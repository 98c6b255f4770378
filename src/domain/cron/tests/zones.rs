//! Brute force over all zones of the database, and over years with unusual changes.

use super::oracle::{Oracle, instants};
use super::*;
use chrono::{DateTime, NaiveDate};

const DAY: i64 = 86_400;

const ALL_RULES: [(GapRule, FoldRule); 5] = [
    (GapRule::Skip, FoldRule::Both),
    (GapRule::After, FoldRule::First),
    (GapRule::Shift, FoldRule::Second),
    (GapRule::Skip, FoldRule::First),
    (GapRule::Shift, FoldRule::Both),
];

fn date(second: i64) -> NaiveDate {
    DateTime::from_timestamp(second, 0).unwrap().date_naive()
}

/// Some days before and after.
fn walls(oracle: &Oracle, (from, until): (i64, i64)) -> Vec<i64> {
    oracle.walls(date(from - 2 * DAY), usize::try_from((until - from) / DAY + 5).unwrap())
}

/// Compares all fires after `from` and not after `until` with the oracle's.
fn compare(cron: &Cron, walls: &[i64], name: &str, (from, until): (i64, i64), (gap, fold): (GapRule, FoldRule)) {
    let (text, zone) = (cron.text(), zone(name));
    let near = &walls[walls.partition_point(|wall| *wall < from - 2 * DAY)..walls.partition_point(|wall| *wall < until + 2 * DAY)];
    let expected: Vec<_> = instants(near, name, gap, fold).into_iter().filter(|at| *at > from && *at <= until).collect();
    let mut found = Vec::new();
    let mut at = Timestamp(from * 1000);
    while let Some(next) = cron.next(&zone, rules(gap, fold), at).filter(|next| next.at.0 <= until * 1000) {
        assert!(next.at > at, "{text} in {name}: {at} is followed by {}", next.at);
        at = next.at;
        found.push(at.0 / 1000);
    }
    let differs = (0..).zip(found.iter().zip(&expected)).find(|(_, (a, b))| a != b);
    assert!(found == expected, "{text} in {name}, {gap:?}, {fold:?}, from {from}: {} and {}, {differs:?}", found.len(), expected.len());
}

/// The changes of offset of a zone in these years, and one instant without any.
fn windows(name: &str, from_year: i32, until_year: i32) -> Vec<(i64, i64)> {
    let second = |year| NaiveDate::from_ymd_opt(year, 1, 1).unwrap().and_hms_opt(0, 0, 0).unwrap().and_utc().timestamp();
    let (mut at, end, zone) = (second(from_year), second(until_year), zone(name));
    let mut windows = Vec::new();
    while let Some(change) = zone.change_after(at).filter(|change| change.at < end) {
        windows.push((change.at - DAY - 7, change.at + DAY + 1800));
        at = change.at;
    }
    windows
}

#[test]
fn all_zones_of_a_year() {
    const YEAR: (i64, i64) = (1_767_225_600, 1_798_761_600);
    let with_walls = |text| (cron(text), walls(&Oracle::new(text), YEAR));
    let sparse = ["30 2 * * *", "0 0 * * *", "15 1,3 L * *", "59 23 * * 6L", "0 12 15W */2 *"].map(with_walls);
    let dense = ["*/15 * * * *", "*/20 0-4 * * *", "7 7 1-3 * * *"].map(with_walls);
    let mut count = 0;
    for (n, name) in Zone::all_names().enumerate() {
        for (cron, walls) in sparse.iter().cycle().skip(n).take(2) {
            compare(cron, walls, &name, YEAR, ALL_RULES[n / 5 % 5]);
        }
        for window in windows(&name, 2026, 2027) {
            for (k, (cron, walls)) in dense.iter().enumerate() {
                compare(cron, walls, &name, window, ALL_RULES[(n + k) % 5]);
                compare(cron, walls, &name, window, ALL_RULES[(n + k + 2) % 5]);
            }
        }
        count += 1;
    }
    assert!(count > 550, "{count} zones");
}

#[test]
fn every_change_since_1970_of_odd_zones() {
    let texts = ["*/10 * * * *", "0 0 * * *", "30 2 * * *", "45 23 L,30 * *", "12 34 0,1,12 * * 5"];
    let oracles = texts.map(|text| (cron(text), Oracle::new(text)));
    for name in [
        "Europe/Dublin",
        "America/Santiago",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Africa/Casablanca",
        "Africa/El_Aaiun",
        "Pacific/Chatham",
        "Pacific/Apia",
        "Pacific/Kwajalein",
        "Pacific/Kiritimati",
        "Antarctica/Troll",
        "Antarctica/Casey",
        "America/Sao_Paulo",
        "America/Caracas",
        "America/Godthab",
        "Africa/Monrovia",
        "Africa/Cairo",
        "Asia/Pyongyang",
        "Asia/Gaza",
        "Asia/Amman",
        "Europe/Volgograd",
        "Europe/Istanbul",
        "Asia/Singapore",
    ] {
        for (n, window) in windows(name, 1970, 2099).into_iter().enumerate() {
            // After 2037 every year is like the previous one; only Morocco's differ, until 2087.
            if window.0 > 2_145_916_800 && n % 16 > 0 {
                continue;
            }
            for (k, (cron, oracle)) in oracles.iter().enumerate().cycle().skip(n % 5).take(3) {
                compare(cron, &walls(oracle, window), name, window, ALL_RULES[(n / 5 + k) % 5]);
            }
        }
    }
}

/// The assumptions of `next` about the zones.
#[test]
fn changes_stand_apart() {
    for name in Zone::all_names() {
        let zone = zone(&name);
        let (mut at, mut last) = (-2 * DAY, None::<crate::domain::zone::Change>);
        while let Some(change) = zone.change_after(at).filter(|change| change.at < 4_102_444_800) {
            assert!(change.gap().max(change.fold()) <= DAY, "{name}: {change:?}");
            assert_ne!(change.before, change.after, "{name}");
            assert_eq!((change.before, change.after), (zone.offset_at(change.at - 1), zone.offset_at(change.at)), "{name}");
            assert_eq!(zone.change_until(change.at), Some(change), "{name}");
            assert_eq!(
                zone.change_until(change.at - 1).map(|c| c.at),
                last.map(|c| c.at).or_else(|| zone.change_until(at).map(|c| c.at)),
                "{name}"
            );
            if let Some(last) = last {
                assert_eq!(last.after, change.before, "{name}");
                assert!(change.at - last.at > last.gap().max(last.fold()) + change.fold().max(change.gap()), "{name}: {last:?} {change:?}");
            }
            (at, last) = (change.at, Some(change));
        }
    }
}
