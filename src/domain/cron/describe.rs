//! Describes an expression in short English, so that people can check it.

use super::days::Days;
use super::field::{Field, Item};
use super::parse::Fields;
use super::unit::{MONTHS, Unit, WEEKDAYS};

/// With more times of day than this, the text describes the fields instead.
const MAX_TIMES: usize = 6;

pub(super) fn describe(fields: &Fields, days: &Days) -> String {
    let mut text = time(fields);
    let by_date = (!days_free(&fields.day_of_month, Unit::DayOfMonth)).then(|| format!("on {}", dates(&fields.day_of_month)));
    let by_weekday = (!days_free(&fields.day_of_week, Unit::DayOfWeek)).then(|| weekdays(&fields.day_of_week));
    match (by_date, by_weekday) {
        (None, None) if text.starts_with("at ") && !text.contains(" of ") && fields.month.is_all(Unit::Month) => text += " every day",
        (None, None) => {}
        (Some(date), None) => text += &format!(" {date} of the month"),
        (None, Some(weekday)) => text += &format!(" on {weekday}"),
        (Some(date), Some(weekday)) => {
            text += &format!(" {date} of the month{}{weekday}", if days.either { " or on " } else { ", only if that is " });
        }
    }
    if !fields.month.is_all(Unit::Month) {
        let month = |value: u16| capital(MONTHS[usize::from(value - 1) % 12]);
        text += &format!(" in {}", list(&fields.month, Unit::Month, &month));
    }
    if !fields.year.is_all(Unit::Year) {
        text += &format!(" in {}", list(&fields.year, Unit::Year, &|year| year.to_string()));
    }
    text
}

/// Every day, and in a form that the either-day rule does not affect.
fn days_free(field: &Field, unit: Unit) -> bool {
    field.starred && field.is_all(unit)
}

fn time(fields: &Fields) -> String {
    let (seconds, minutes, hours) =
        (fields.second.values(Unit::Second), fields.minute.values(Unit::Minute), fields.hour.values(Unit::Hour));
    if seconds.len() * minutes.len() * hours.len() <= MAX_TIMES {
        let mut times = Vec::new();
        for hour in &hours {
            for minute in &minutes {
                for second in &seconds {
                    let seconds = if seconds == [0] { String::new() } else { format!(":{second:02}") };
                    times.push(format!("{hour:02}:{minute:02}{seconds}"));
                }
            }
        }
        return format!("at {}", join(&times));
    }
    let number = |value: u16| value.to_string();
    let mut parts = Vec::new();
    if seconds != [0] {
        parts.push(every(&fields.second, Unit::Second, "second"));
    }
    if minutes.len() < 60 || seconds == [0] {
        parts.push(every(&fields.minute, Unit::Minute, "minute"));
    }
    match hours.len() {
        24 if minutes.len() == 60 || fields.minute.starred => {}
        24 => parts.push("of every hour".to_owned()),
        _ => parts.push(format!("of hour {}", list(&fields.hour, Unit::Hour, &number))),
    }
    let text = parts.join(", ").replace(", of", " of");
    if text.starts_with("every") { text } else { format!("at {text}") }
}

/// `every minute`, `every 5th minute`, `minute 1, 2`.
fn every(field: &Field, unit: Unit, name: &str) -> String {
    match field.items[..] {
        [Item::Span { star: true, step: 1, .. }] => format!("every {name}"),
        [Item::Span { star: true, step, .. }] => format!("every {step} {name}s"),
        _ if field.is_all(unit) => format!("every {name}"),
        _ => format!("{name} {}", list(field, unit, &|value| value.to_string())),
    }
}

fn dates(field: &Field) -> String {
    let day = |value: u16| value.to_string();
    let items = field.items.iter().map(|item| match *item {
        Item::Last { before: 0, weekday: false } => "the last day".to_owned(),
        Item::Last { before: 0, weekday: true } => "the last weekday (Monday to Friday)".to_owned(),
        Item::Last { before, weekday: false } => format!("the day {before} before the last"),
        Item::Last { before, weekday: true } => format!("the weekday nearest to the day {before} before the last"),
        Item::Near(n) => format!("the weekday nearest to day {n}"),
        item => format!("day {}", span(item, Unit::DayOfMonth, &day)),
    });
    join(&items.collect::<Vec<_>>())
}

fn weekdays(field: &Field) -> String {
    let name = |value: u16| capital(WEEKDAYS[usize::from(value) % 7]);
    let items = field.items.iter().map(|item| match *item {
        Item::LastWeekday(day) => format!("the last {}", name(day)),
        Item::Nth(day, nth) => {
            format!("the {} {}", ["first", "second", "third", "fourth", "fifth"][usize::from(nth.saturating_sub(1)) % 5], name(day))
        }
        item => span(item, Unit::DayOfWeek, &name),
    });
    join(&items.collect::<Vec<_>>())
}

fn list(field: &Field, unit: Unit, say: &dyn Fn(u16) -> String) -> String {
    join(&field.items.iter().map(|item| span(*item, unit, say)).collect::<Vec<_>>())
}

fn span(item: Item, unit: Unit, say: &dyn Fn(u16) -> String) -> String {
    match item {
        Item::Span { star: true, step: 1, .. } => "any".to_owned(),
        Item::Span { from, to, .. } if from == to => say(from),
        Item::Span { from, to, step: 1, .. } => format!("{} to {}", say(from), say(to)),
        item => join(&Field { items: vec![item], starred: false }.values(unit).into_iter().map(say).collect::<Vec<_>>()),
    }
}

fn join(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn capital(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}
