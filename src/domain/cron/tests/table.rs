//! The table of published cases (`cases.txt`), each checked step by step and from instants between two fires.

use super::*;

const CASES: &str = include_str!("cases.txt");

#[test]
fn the_table_is_answered() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for line in CASES.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let [text, zone_name, after, options, expected] = cells[..] else { panic!("{line}") };
        let (mut rules, mut dialect) = (ZoneRules::default(), Dialect::Crontab);
        for option in options.split_whitespace() {
            match option.split_once('=') {
                Some(("gap", rule)) => rules.gap = Some(rule.parse::<GapRule>().unwrap()),
                Some(("fold", rule)) => rules.fold = Some(rule.parse::<FoldRule>().unwrap()),
                _ => dialect = option.parse().unwrap(),
            }
        }
        let expected: Vec<_> = expected.split_whitespace().map(|at| at.replace('Z', "+00:00")).collect();
        let cron = Cron::parse(text, dialect).unwrap_or_else(|e| panic!("{line}: {e}"));
        let zone = Zone::named(zone_name).unwrap();
        let mut found = Vec::new();
        let mut at = zone.instant(after).unwrap();
        if expected.is_empty() {
            assert_eq!(cron.next(&zone, rules, at), None, "{line}");
        }
        while found.len() < expected.len() {
            let Some(next) = cron.next(&zone, rules, at) else { break };
            // From any instant between two fires the result is the same.
            for between in [at.plus_ms(1), Timestamp(at.0.midpoint(next.at.0)), next.at.plus_ms(-1)] {
                if between < next.at && between >= at {
                    assert_eq!(cron.next(&zone, rules, between), Some(next), "{line}, from {between}");
                }
            }
            at = next.at;
            found.push(zone.rfc3339(at));
        }
        count += 1;
        if found != expected {
            wrong.push(format!("{line}\n   found {}", found.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {count} are wrong\n{}", wrong.len(), wrong.join("\n"));
    assert!(count > 600, "the table was not read");
}
