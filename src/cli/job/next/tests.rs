use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn tell(words: &[&str]) -> Answer {
    let line = Line::try_parse_from([&["next"], words].concat()).unwrap();
    answer(&line.args, Timestamp(1_790_000_000_000))
}

#[test]
fn a_fire_a_line() {
    let told = tell(&["30 2 * * *", "--zone", "Europe/Berlin", "--after", "2026-03-28T00:00", "--count", "2"]);
    let expected =
        "2026-03-28T02:30:00+01:00\n2026-03-29T03:00:00+02:00  local time 2026-03-29T02:30:00 is missing; first instant after the gap\n";
    assert_eq!(told.out, expected);
    assert_eq!(told.code, 0);
    assert!(told.err.lines().all(|line| line.starts_with("# ")), "{}", told.err);
    assert!(told.err.contains("0 30 2 * * * *"), "{}", told.err);
}
