//! Parses one field: lists, ranges, steps, names, and `L`, `W` and `#` of the day fields.

use super::days::Days;
use super::dialect::Dialect;
use super::unit::Unit;

/// A part of the expression: its text, and its offset in characters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece<'a> {
    pub text: &'a str,
    pub at: usize,
}

/// Offset of the error, and its text.
pub(super) type Fault = (usize, String);

/// One item of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// `*`, `*/n`, `a`, `a-b`, `a/n`, `a-b/n`; `to < from` wraps around the end.
    Span { from: u16, to: u16, step: u16, star: bool },
    /// `L`, `L-3`; with `weekday` `LW`, `L-3W`.
    Last { before: u16, weekday: bool },
    /// `15W`.
    Near(u16),
    /// `5L`.
    LastWeekday(u16),
    /// `5#2`: weekday and count.
    Nth(u16, u16),
}

/// A parsed field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub items: Vec<Item>,
    /// Its text begins with `*`, or is `?`.
    pub starred: bool,
}

impl Field {
    /// A field that is not in the expression.
    pub(super) fn of(unit: Unit, value: Option<u16>) -> Self {
        let (first, last) = unit.bounds();
        let (from, to) = value.map_or((first, last), |v| (v, v));
        Self { items: vec![Item::Span { from, to, step: 1, star: value.is_none() }], starred: value.is_none() }
    }

    /// Its plain values, sorted and distinct.
    pub(super) fn values(&self, unit: Unit) -> Vec<u16> {
        let (first, count) = (unit.bounds().0, unit.count());
        let mut values = Vec::new();
        for item in &self.items {
            if let Item::Span { from, to, step, .. } = *item {
                let length = if to < from { to + count - from } else { to - from };
                values.extend((0..=length).step_by(step.into()).map(|n| first + (from - first + n) % count));
            }
        }
        values.sort_unstable();
        values.dedup();
        values
    }

    /// Whether it matches every value.
    pub(super) fn is_all(&self, unit: Unit) -> bool {
        self.values(unit).len() == usize::from(unit.count())
    }

    /// Adds its values to the bit masks of a [`Days`].
    pub(super) fn add_to(&self, unit: Unit, days: &mut Days) {
        for value in self.values(unit) {
            if unit == Unit::DayOfMonth { days.month_days |= 1 << value } else { days.weekdays |= 1 << value }
        }
        for item in &self.items {
            match *item {
                Item::Span { .. } => {}
                Item::Last { before, weekday: false } => days.from_last |= 1 << before,
                Item::Last { before, weekday: true } => days.near_from_last |= 1 << before,
                Item::Near(day) => days.near |= 1 << day,
                Item::LastWeekday(day) => days.last_weekdays |= 1 << day,
                Item::Nth(day, nth) => days.nth_weekdays |= 1 << (7 * (nth - 1) + day),
            }
        }
    }

    /// Parses a field.
    pub(super) fn parse(unit: Unit, dialect: Dialect, field: Piece<'_>) -> Result<Self, Fault> {
        let reader = Reader { unit, dialect };
        if field.text == "?" {
            if !unit.is_day() {
                return Err((field.at, "? is only for day of month and day of week".to_owned()));
            }
            return Ok(Self::of(unit, None));
        }
        let mut items = Vec::new();
        let mut at = field.at;
        for text in field.text.split(',') {
            items.push(reader.item(Piece { text, at })?);
            at += text.chars().count() + 1;
        }
        Ok(Self { items, starred: field.text.starts_with('*') })
    }
}

#[derive(Clone, Copy)]
struct Reader {
    unit: Unit,
    dialect: Dialect,
}

impl Reader {
    fn item(self, item: Piece<'_>) -> Result<Item, Fault> {
        if item.text.is_empty() {
            return Err((item.at, "an item of the list is empty".to_owned()));
        }
        if let Some((place, odd)) = item.text.chars().enumerate().find(|(_, c)| !c.is_ascii_alphanumeric() && !"*/-#?".contains(*c)) {
            return Err((item.at + place, odd_character(odd)));
        }
        // From here on the text is ASCII: byte offsets are character offsets.
        if let Some(special) = self.special(item)? {
            return Ok(special);
        }
        if item.text.starts_with('/') {
            return Err((item.at, "a value or * is missing before /".to_owned()));
        }
        let (range, step) = match item.text.split_once('/') {
            Some((range, step)) => (range, Some(self.step(Piece { text: step, at: item.at + range.len() + 1 })?)),
            None => (item.text, None),
        };
        let (first, last) = self.unit.bounds();
        if range == "*" {
            return Ok(Item::Span { from: first, to: last, step: step.unwrap_or(1), star: true });
        }
        if let Some(place) = range.find(['*', '?']) {
            return Err((item.at + place, format!("{} must stand alone", &range[place..=place])));
        }
        let Some((from, to)) = range.split_once('-') else {
            let from = self.value(Piece { text: range, at: item.at })? % self.sunday();
            return Ok(Item::Span { from, to: if step.is_some() { last } else { from }, step: step.unwrap_or(1), star: false });
        };
        let to = Piece { text: to, at: item.at + from.len() + 1 };
        if let Some(place) = to.text.find('-') {
            return Err((to.at + place, "a range has two ends".to_owned()));
        }
        let (from, end) = (self.value(Piece { text: from, at: item.at })?, self.value(to)?);
        if self.unit == Unit::Year && end < from {
            return Err((item.at, format!("the range {} ends before it begins", short(range))));
        }
        let (from, end) = match (self.sunday(), from, end) {
            // The whole week, with Sunday at both ends.
            (7, 0, 7) => (0, 6),
            (sunday, from, end) => (from % sunday, end % sunday),
        };
        Ok(Item::Span { from, to: end, step: step.unwrap_or(1), star: false })
    }

    /// The modulus that maps weekday 7 to 0 and changes nothing else.
    fn sunday(self) -> u16 {
        if self.unit == Unit::DayOfWeek { 7 } else { u16::MAX }
    }

    fn step(self, step: Piece<'_>) -> Result<u16, Fault> {
        if step.text.contains('/') {
            return Err((step.at, "there can be one step only".to_owned()));
        }
        if step.text.is_empty() || !step.text.bytes().all(|b| b.is_ascii_digit()) {
            return Err((step.at, format!("the step must be a number from 1 to {}, not {:?}", self.unit.count(), short(step.text))));
        }
        match step.text.parse::<u16>() {
            Ok(0) => Err((step.at, format!("the step must be 1 to {}, not 0", self.unit.count()))),
            Ok(n) if n <= self.unit.count() => Ok(n),
            _ => {
                let (unit, count) = (self.unit.name(), self.unit.count());
                Err((step.at, format!("the step of the {unit} must be 1 to {count}, not {}", short(step.text))))
            }
        }
    }

    /// Parses a number or a name. Weekdays count from Sunday = 0, but a 7 of crontab stays 7.
    fn value(self, value: Piece<'_>) -> Result<u16, Fault> {
        let unit = self.unit;
        if value.text.is_empty() {
            return Err((value.at, "a value is missing".to_owned()));
        }
        if let Some(named) = unit.named(value.text) {
            return Ok(named);
        }
        if !value.text.bytes().all(|b| b.is_ascii_digit()) {
            return Err((value.at, self.no_value(value.text)));
        }
        let (first, last) = unit.written(self.dialect);
        let number = value.text.parse::<u16>().ok().filter(|n| (first..=last).contains(n));
        let number =
            number.ok_or_else(|| (value.at, format!("the {} must be {first} to {last}, not {}", unit.name(), short(value.text))))?;
        Ok(if unit == Unit::DayOfWeek && self.dialect == Dialect::Quartz { number - 1 } else { number })
    }

    fn no_value(self, text: &str) -> String {
        let (first, last) = self.unit.written(self.dialect);
        let upper = text.to_ascii_uppercase();
        let text = short(text);
        let names = match self.unit {
            Unit::Month => " or a name like JAN",
            Unit::DayOfWeek => " or a name like MON",
            _ => "",
        };
        if !self.unit.is_day() && (upper == "L" || upper.ends_with('W') || text.contains('#')) {
            return format!("{text:?}: L, W and # are only for day of month and day of week");
        }
        if upper == "H" {
            return "H (a value chosen by a hash) is not supported".to_owned();
        }
        if [Unit::Month, Unit::DayOfWeek].iter().any(|unit| unit.named(&text).is_some()) {
            return format!("the name {text:?} is of another field");
        }
        format!("the {} must be {first} to {last}{names}, not {text:?}", self.unit.name())
    }

    /// Parses items with `L`, `W` or `#`.
    fn special(self, item: Piece<'_>) -> Result<Option<Item>, Fault> {
        match self.unit {
            Unit::DayOfMonth => self.special_date(item),
            Unit::DayOfWeek => self.special_weekday(item),
            _ => Ok(None),
        }
    }

    fn special_date(self, item: Piece<'_>) -> Result<Option<Item>, Fault> {
        let upper = item.text.to_ascii_uppercase();
        if let Some(place) = upper.find('#') {
            return Err((item.at + place, "# is only for day of week".to_owned()));
        }
        if let Some(rest) = upper.strip_prefix('L') {
            let (rest, weekday) = rest.strip_suffix('W').map_or((rest, false), |rest| (rest, true));
            if rest.is_empty() {
                return Ok(Some(Item::Last { before: 0, weekday }));
            }
            let days = rest.strip_prefix('-').filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
            let Some(days) = days else { return Err((item.at, format!("{:?} is not L, L-3, LW or L-3W", short(item.text)))) };
            let before = days.parse().ok().filter(|n| *n <= 30);
            let before = before.ok_or_else(|| (item.at + 2, format!("L-{}: no month has a day so far from its end", short(days))))?;
            return Ok(Some(Item::Last { before, weekday }));
        }
        if let Some(day) = upper.strip_suffix('W') {
            if !day.is_empty() && !day.bytes().all(|b| b.is_ascii_digit()) {
                return Err((item.at, format!("{:?}: W goes with one day, as 15W", short(item.text))));
            }
            if day.is_empty() {
                return Err((item.at, "W needs a day before it, as 15W".to_owned()));
            }
            return Ok(Some(Item::Near(self.value(Piece { text: day, at: item.at })?)));
        }
        match upper.find('L').filter(|_| Unit::Month.named(&upper).is_none()) {
            Some(place) => Err((item.at + place, "L must be first: L, L-3, LW; the last Friday is FRIL in day of week".to_owned())),
            None => Ok(None),
        }
    }

    fn special_weekday(self, item: Piece<'_>) -> Result<Option<Item>, Fault> {
        let one_day = |text: &str, sign: &str| match text.find(['-', '/', '*', '?']) {
            Some(place) => Err((item.at + place, format!("{sign} goes with one weekday"))),
            None => Ok(self.value(Piece { text, at: item.at })? % 7),
        };
        if let Some((day, nth)) = item.text.split_once('#') {
            let at = item.at + day.len() + 1;
            let number = nth.parse::<u16>().ok().filter(|n| nth.len() == 1 && (1..=5).contains(n));
            let number = number.ok_or_else(|| (at, format!("the number after # must be 1 to 5, not {:?}", short(nth))))?;
            return Ok(Some(Item::Nth(one_day(day, "#")?, number)));
        }
        if item.text.eq_ignore_ascii_case("L") {
            return match self.dialect {
                // In Quartz a plain L is 7.
                Dialect::Quartz => Ok(Some(Item::Span { from: 6, to: 6, step: 1, star: false })),
                Dialect::Crontab => Err((item.at, "L needs a weekday before it: 5L or FRIL is the month's last Friday".to_owned())),
            };
        }
        if let Some(day) = item.text.strip_suffix(['L', 'l']) {
            return Ok(Some(Item::LastWeekday(one_day(day, "L")?)));
        }
        match item.text.strip_suffix(['W', 'w']) {
            Some(_) => Err((item.at + item.text.len() - 1, "W is only for day of month; working days are MON-FRI".to_owned())),
            None => Ok(None),
        }
    }
}

fn odd_character(odd: char) -> String {
    match odd {
        '~' => "~ (a random value) is not supported".to_owned(),
        '=' => "a variable cannot be set here; the time zone must be set in its own field".to_owned(),
        odd => format!("the character {odd:?} has no meaning here"),
    }
}

/// A shortened text for quoting in a message; the whole expression is shown with the message.
fn short(text: &str) -> String {
    if text.len() <= 24 { text.to_owned() } else { text.chars().take(20).chain("...".chars()).collect() }
}
