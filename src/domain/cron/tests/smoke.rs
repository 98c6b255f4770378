use super::*;

#[test]
fn spring_and_autumn() {
    let none = ZoneRules::default();
    assert_eq!(
        fires("30 2 * * *", "Europe/Berlin", none, "2026-03-28T12:00", 2),
        ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
    );
    assert_eq!(
        fires("30 2 * * *", "Europe/Berlin", none, "2026-10-24T12:00", 2),
        ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    );
}
