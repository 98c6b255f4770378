//! Compares random expressions with brute force.

use super::oracle::{Oracle, instants};
use super::*;
use chrono::DateTime;
use proptest::prelude::*;

fn plain(first: u32, last: u32, wraps: bool) -> impl Strategy<Value = String> {
    let value = first..=last;
    let step = 1..=(last - first + 1).min(40);
    prop_oneof![
        3 => value.clone().prop_map(|a| a.to_string()),
        2 => (value.clone(), value.clone()).prop_map(move |(a, b)| if wraps { format!("{a}-{b}") } else { format!("{}-{}", a.min(b), a.max(b)) }),
        1 => (value.clone(), step.clone()).prop_map(|(a, n)| format!("{a}/{n}")),
        1 => (value.clone(), value, step.clone()).prop_map(move |(a, b, n)| {
            if wraps { format!("{a}-{b}/{n}") } else { format!("{}-{}/{n}", a.min(b), a.max(b)) }
        }),
        1 => step.prop_map(|n| format!("*/{n}")),
    ]
}

fn list(item: impl Strategy<Value = String>, star: u32) -> impl Strategy<Value = String> {
    prop_oneof![star => Just("*".to_owned()), 3 => prop::collection::vec(item, 1..4).prop_map(|items| items.join(","))]
}

fn date() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => plain(1, 31, true),
        1 => Just("L".to_owned()),
        1 => Just("LW".to_owned()),
        1 => (1..=30).prop_map(|n| format!("L-{n}")),
        1 => (1..=30).prop_map(|n| format!("L-{n}W")),
        1 => (1..=31).prop_map(|n| format!("{n}W")),
    ]
}

fn weekday() -> impl Strategy<Value = String> {
    prop_oneof![
        5 => plain(0, 6, true),
        1 => (0..=6).prop_map(|a| format!("{a}-7")),
        1 => (0..=7).prop_map(|d| format!("{d}L")),
        1 => (0..=7, 1..=5).prop_map(|(d, n)| format!("{d}#{n}")),
    ]
}

/// Few seconds, so that the oracle stays fast.
fn expression() -> impl Strategy<Value = String> {
    let second = prop_oneof![2 => Just("0".to_owned()), 1 => (0_u32..60).prop_map(|s| s.to_string()), 1 => (0_u32..60, 20_u32..=60).prop_map(|(s, n)| format!("{s}/{n}"))];
    let time = (second, list(plain(0, 59, true), 1), list(plain(0, 23, true), 2));
    let days = (list(date(), 3), list(plain(1, 12, true), 6), list(weekday(), 3));
    let year = prop_oneof![4 => Just("*".to_owned()), 1 => plain(2020, 2040, false)];
    (time, days, year).prop_map(|((s, m, h), (d, mo, w), y)| format!("{s} {m} {h} {d} {mo} {w} {y}"))
}

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Santiago",
    "Africa/Casablanca",
    "Pacific/Chatham",
    "America/Havana",
    "Pacific/Apia",
];

fn all_rules() -> impl Strategy<Value = (GapRule, FoldRule)> {
    (
        prop::sample::select(vec![GapRule::Skip, GapRule::After, GapRule::Shift]),
        prop::sample::select(vec![FoldRule::First, FoldRule::Second, FoldRule::Both]),
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Step by step for 40 days between 2008 and 2030: exactly the fires that brute force finds, in order, without duplicates.
    #[test]
    fn next_is_what_brute_force_finds(
        text in expression(), name in prop::sample::select(ZONES.to_vec()), (gap, fold) in all_rules(), from in 1_200_000_000_i64..1_900_000_000,
    ) {
        let (cron, zone, oracle) = (cron(&text), zone(name), Oracle::new(&text));
        let until = from + 40 * 86_400;
        let walls = oracle.walls(DateTime::from_timestamp(from - 2 * 86_400, 0).unwrap().date_naive(), 45);
        let expected: Vec<_> = instants(&walls, name, gap, fold).into_iter().filter(|at| *at > from && *at <= until).take(300).collect();
        let mut at = Timestamp(from * 1000);
        for second in &expected {
            let next = cron.next(&zone, rules(gap, fold), at).map(|next| next.at);
            prop_assert_eq!(next, Some(Timestamp(second * 1000)), "after {}", at);
            // Also starting between two fires, and within the second before a fire.
            let asked = Timestamp(second * 1000 - 1);
            prop_assert_eq!(cron.next(&zone, rules(gap, fold), asked.max(at)).map(|next| next.at), next);
            at = Timestamp(second * 1000);
        }
        if expected.len() < 300 {
            let next = cron.next(&zone, rules(gap, fold), at);
            prop_assert!(next.is_none_or(|next| next.at.0 > until * 1000), "after {}: {:?}", at, next);
        }
    }

    /// The formatted expression parses to the same expression.
    #[test]
    fn understood_is_read_as_the_same(text in expression()) {
        let (one, other) = (cron(&text), cron(&cron(&text).understood()));
        prop_assert_eq!(one.understood(), other.understood());
        prop_assert_eq!((one.days, one.elapsed), (other.days, other.elapsed));
        prop_assert_eq!(one.fields().unwrap().for_crate(&one.days), other.fields().unwrap().for_crate(&other.days));
        prop_assert!(!one.describe().is_empty());
    }

    /// Any text gives a result or an error with a valid position, never a panic.
    #[test]
    fn no_text_breaks_it(text in "[-0-9*/,?LW#A-Za-z@~ \t\u{e9}]{0,40}", quartz in any::<bool>()) {
        let dialect = if quartz { Dialect::Quartz } else { Dialect::Crontab };
        match Cron::parse(&text, dialect) {
            Ok(cron) => {
                let next = cron.next(&Zone::utc(), ZoneRules::default(), Timestamp(1_790_000_000_000));
                prop_assert!(next.is_none_or(|next| next.at.0 > 1_790_000_000_000));
                prop_assert!(!cron.understood().is_empty() && !cron.describe().is_empty());
            }
            Err(error) => prop_assert!(error.position <= text.chars().count() && error.pointer().ends_with('^')),
        }
    }

    /// Texts that resemble expressions.
    #[test]
    fn no_field_breaks_it(fields in prop::collection::vec("[-0-9*/,?LWFRI#]{1,5}", 5..=7)) {
        let text = fields.join(" ");
        if let Ok(cron) = Cron::parse(&text, Dialect::Crontab) {
            let next = cron.next(&zone("Europe/Berlin"), ZoneRules::default(), Timestamp(0));
            prop_assert!(next.is_none_or(|next| next.at.0 > 0));
        }
    }
}
