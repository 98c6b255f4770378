//! Time series of the broker: what happened in each step of time, kept in three rings of coarser and coarser steps.
//!
//! A [`Point`] contains what happened in one step: sums (runs that ended, bytes) and gauges (nodes online). Points of steps that follow
//! each other merge into the point of a longer step, so a ring of longer steps needs no pass of its own: each new point is merged into
//! the current point of each ring. A ring keeps its newest rows and no others, whatever the clock does.
//!
//! The distribution of a duration is stored as sums too, one for each upper bound (`lateness/10`), because sums merge and percentiles
//! do not.

use super::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Steps of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ring {
    /// Length of a step in milliseconds.
    pub step_ms: i64,
    /// Number of steps that are kept.
    pub rows: i64,
}

const MINUTE_MS: i64 = 60_000;

/// Minutes of a day, quarters of an hour of thirty days, quarters of a day of a year, each with a little more.
pub const RINGS: [Ring; 3] = [
    Ring { step_ms: MINUTE_MS, rows: 1_500 },
    Ring { step_ms: 15 * MINUTE_MS, rows: 3_000 },
    Ring { step_ms: 360 * MINUTE_MS, rows: 1_500 },
];

impl Ring {
    /// The start of the step that contains this time.
    #[must_use]
    pub fn start_of(self, at: Timestamp) -> Timestamp {
        Timestamp(at.0 - at.0.rem_euclid(self.step_ms))
    }

    /// Number of steps that overlap this period; at least 1.
    fn steps(self, from: Timestamp, to: Timestamp) -> i64 {
        (self.start_of(to).since_ms(self.start_of(from)) / self.step_ms + 1).max(1)
    }
}

/// The ring with the finest steps that still contains this period.
#[must_use]
pub fn ring_for(from: Timestamp, to: Timestamp, now: Timestamp) -> Ring {
    let fits = |ring: &&Ring| ring.steps(from, now) <= ring.rows && ring.steps(from, to) <= ring.rows;
    *RINGS.iter().find(fits).unwrap_or(&RINGS[RINGS.len() - 1])
}

/// A value that goes up and down, over the times at which it was observed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, u64, u64, u64)", into = "(u64, u64, u64, u64)")]
pub struct Gauge {
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    sum: u64,
    observations: u64,
}

impl From<(u64, u64, u64, u64)> for Gauge {
    fn from((min, max, sum, observations): (u64, u64, u64, u64)) -> Self {
        Self { min, max, sum, observations }
    }
}

impl From<Gauge> for (u64, u64, u64, u64) {
    fn from(gauge: Gauge) -> Self {
        (gauge.min, gauge.max, gauge.sum, gauge.observations)
    }
}

impl Gauge {
    /// One observation.
    #[must_use]
    pub fn of(value: u64) -> Self {
        Self { min: value, max: value, sum: value, observations: 1 }
    }

    fn merge(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
            sum: self.sum.saturating_add(other.sum),
            observations: self.observations.saturating_add(other.observations),
        }
    }

    /// The mean of the observations.
    #[must_use]
    pub fn mean(self) -> f64 {
        self.sum as f64 / self.observations.max(1) as f64
    }
}

/// Sums by name. A name without a sum counts as 0.
pub type Sums = BTreeMap<String, u64>;

/// What happened in one step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Sums by name.
    #[serde(default)]
    pub sums: Sums,
    /// Gauges by name.
    #[serde(default)]
    pub gauges: BTreeMap<String, Gauge>,
}

impl Point {
    /// Adds what happened in another step.
    pub fn merge(&mut self, other: &Self) {
        for (name, sum) in &other.sums {
            let own = self.sums.entry(name.clone()).or_default();
            *own = own.saturating_add(*sum);
        }
        for (name, gauge) in &other.gauges {
            self.gauges.entry(name.clone()).and_modify(|own| *own = own.merge(*gauge)).or_insert(*gauge);
        }
    }

    /// The stored form.
    #[must_use]
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("a point is plain data")
    }

    /// Parses the stored form. A damaged point is empty, because a gap in a plot harms less than a missing page.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }

    /// A percentile of a duration, rounded up to its bound; `None` if nothing was measured. What is above the last bound counts as it.
    fn percentile(&self, name: &str, percent: u64) -> Option<u64> {
        let buckets = self.sums.iter().filter_map(|(key, count)| {
            let bound = key.strip_prefix(name)?.strip_prefix(BOUND)?;
            Some((bound.parse::<u64>().ok()?, *count))
        });
        let buckets: BTreeMap<u64, u64> = buckets.collect();
        let wanted = (buckets.values().sum::<u64>() * percent).div_ceil(100);
        let mut upto = 0;
        buckets.iter().filter(|_| wanted > 0).find_map(|(bound, count)| {
            upto += count;
            (upto >= wanted).then_some(*bound)
        })
    }

    /// The values of this point as the API shows them.
    fn values(&self) -> BTreeMap<String, f64> {
        let mut values: BTreeMap<String, f64> = BTreeMap::new();
        let mut durations = BTreeSet::new();
        for (name, sum) in &self.sums {
            match name.split_once(BOUND) {
                Some((duration, _)) => drop(durations.insert(duration)),
                None => drop(values.insert(name.clone(), *sum as f64)),
            }
        }
        for duration in durations {
            for percent in [50, 99] {
                let found = self.percentile(duration, percent);
                values.extend(found.map(|ms| (format!("{duration}.p{percent}"), ms as f64)));
            }
        }
        for (name, gauge) in &self.gauges {
            values.insert(name.clone(), (gauge.mean() * 100.0).round() / 100.0);
            values.insert(format!("{name}.max"), gauge.max as f64);
            values.insert(format!("{name}.min"), gauge.min as f64);
        }
        values
    }
}

/// Between the name of a duration and an upper bound in milliseconds.
const BOUND: &str = "/";

/// The name of the sum for a duration up to this many milliseconds.
#[must_use]
pub fn bucket(duration: &str, bound_ms: u64) -> String {
    format!("{duration}{BOUND}{bound_ms}")
}

/// The step that has not ended: what was counted when it began, and the gauges that were observed since.
#[derive(Debug, Default)]
pub struct OpenStep {
    before: Sums,
    gauges: BTreeMap<String, Gauge>,
}

impl OpenStep {
    /// Adds an observation of gauges.
    pub fn observe(&mut self, gauges: impl IntoIterator<Item = (&'static str, u64)>) {
        for (name, value) in gauges {
            let gauge = Gauge::of(value);
            self.gauges.entry(name.to_owned()).and_modify(|own| *own = own.merge(gauge)).or_insert(gauge);
        }
    }

    /// What has happened in this step so far. `totals` are the counts since the start of the process.
    #[must_use]
    pub fn so_far(&self, totals: &Sums) -> Point {
        let sums = totals.iter().filter_map(|(name, total)| {
            let since = total.saturating_sub(self.before.get(name).copied().unwrap_or(0));
            (since > 0).then(|| (name.clone(), since))
        });
        Point { sums: sums.collect(), gauges: self.gauges.clone() }
    }

    /// Ends the step, and begins the next one.
    pub fn end(&mut self, totals: Sums) -> Point {
        let point = self.so_far(&totals);
        *self = Self { before: totals, gauges: BTreeMap::new() };
        point
    }
}

/// The values of a period, one column for each name, one entry for each step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    /// Start of the first step.
    pub from: Timestamp,
    /// Values by name; `None` in steps in which the broker was not running or nothing was measured.
    pub values: BTreeMap<String, Vec<Option<f64>>>,
}

/// Puts points into columns. The `always` are sums that have a column even if they are 0 in all steps.
#[must_use]
pub fn columns(ring: Ring, from: Timestamp, to: Timestamp, points: &BTreeMap<Timestamp, Point>, always: &[&str]) -> Columns {
    let from = ring.start_of(from);
    let steps = ring.steps(from, to).min(ring.rows);
    let shown: BTreeMap<i64, (&Point, BTreeMap<String, f64>)> = points
        .iter()
        .map(|(at, point)| (ring.start_of(*at).since_ms(from) / ring.step_ms, (point, point.values())))
        .filter(|(step, _)| (0..steps).contains(step))
        .collect();
    let sums = shown.values().flat_map(|(point, _)| point.sums.keys()).filter(|name| !name.contains(BOUND));
    let sums: BTreeSet<&str> = sums.map(String::as_str).chain(always.iter().copied()).collect();
    let mut names: BTreeSet<&str> = shown.values().flat_map(|(_, values)| values.keys()).map(String::as_str).collect();
    names.extend(always);
    let column = |name: &str| {
        let value = |step| {
            let (_, values) = shown.get(&step)?;
            values.get(name).copied().or_else(|| sums.contains(name).then_some(0.0))
        };
        (0..steps).map(value).collect()
    };
    Columns { from, values: names.iter().map(|name| ((*name).to_owned(), column(name))).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;

    fn point(sums: &[(&str, u64)], gauges: &[(&str, u64)]) -> Point {
        Point {
            sums: sums.iter().map(|(name, sum)| ((*name).to_owned(), *sum)).collect(),
            gauges: gauges.iter().map(|(name, value)| ((*name).to_owned(), Gauge::of(*value))).collect(),
        }
    }

    #[test]
    fn points_merge_in_any_order_and_survive_being_stored() {
        let parts = [
            point(&[("bytes", 7), ("lateness/10", 1)], &[("nodes.online", 2)]),
            point(&[("bytes", 5)], &[("nodes.online", 5)]),
            point(&[("errors.dns", 1)], &[("nodes.online", 2), ("workers.online", 1)]),
        ];
        let merged = |order: [usize; 3]| {
            let mut all = Point::default();
            for i in order {
                all.merge(&Point::of_text(&parts[i].to_text()));
            }
            all
        };
        let all = merged([0, 1, 2]);
        assert_eq!(all.sums, point(&[("bytes", 12), ("errors.dns", 1), ("lateness/10", 1)], &[]).sums);
        let nodes = all.gauges["nodes.online"];
        assert_eq!((nodes.min, nodes.max, nodes.mean()), (2, 5, 3.0));
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(merged(order), all);
        }
        assert_eq!(Point::of_text("{\"sums\":"), Point::default());
        assert_eq!(Point::of_text("{}"), Point::default());
    }

    #[test]
    fn a_step_counts_what_came_since_the_last_one() {
        let totals = |success: u64| Sums::from([("runs.success".to_owned(), success), ("runs.failed".to_owned(), 1)]);
        let mut open = OpenStep::default();
        open.observe([("nodes.online", 3)]);
        assert_eq!(open.so_far(&totals(4)), point(&[("runs.success", 4), ("runs.failed", 1)], &[("nodes.online", 3)]));
        assert_eq!(open.end(totals(5)).sums["runs.success"], 5);
        assert_eq!(open.so_far(&totals(5)), Point::default());
        open.observe([("nodes.online", 1)]);
        assert_eq!(open.end(totals(7)), point(&[("runs.success", 2)], &[("nodes.online", 1)]));
    }

    #[test]
    fn the_finest_ring_that_contains_the_period_is_chosen() {
        let now = Timestamp(400 * DAY_MS + 12_345);
        let of = |back: i64| ring_for(now.plus_ms(-back), now, now).step_ms / MINUTE_MS;
        assert_eq!(
            [3_600_000, DAY_MS, 2 * DAY_MS, 30 * DAY_MS, 32 * DAY_MS, 366 * DAY_MS, 9_999 * DAY_MS].map(of),
            [1, 1, 15, 15, 360, 360, 360]
        );
        // An hour of three days ago is not in the minutes any more.
        assert_eq!(ring_for(now.plus_ms(-3 * DAY_MS), now.plus_ms(-3 * DAY_MS + 3_600_000), now).step_ms, 15 * MINUTE_MS);
        for ring in RINGS {
            assert_eq!(ring.start_of(Timestamp(-1)).0, -ring.step_ms);
            assert_eq!(ring.start_of(Timestamp(ring.step_ms)).0, ring.step_ms);
        }
    }

    #[test]
    fn percentiles_are_bounds_and_absent_without_measurements() {
        let many = point(&[("lateness/2", 98), ("lateness/10", 1), ("lateness/1000", 1), ("delay/5", 4)], &[]);
        assert_eq!(
            (many.percentile("lateness", 50), many.percentile("lateness", 99), many.percentile("lateness", 100)),
            (Some(2), Some(10), Some(1_000))
        );
        assert_eq!((many.percentile("delay", 99), many.percentile("late", 99)), (Some(5), None));
        assert_eq!(
            many.values().keys().map(String::as_str).collect::<Vec<_>>(),
            ["delay.p50", "delay.p99", "lateness.p50", "lateness.p99"]
        );
    }

    #[test]
    fn columns_have_gaps_where_the_broker_was_not_running() {
        let ring = RINGS[0];
        let at = |minute: i64| Timestamp(minute * MINUTE_MS);
        let points = BTreeMap::from([
            (at(10), point(&[("errors.dns", 1)], &[("nodes.online", 2)])),
            (at(12), point(&[("bytes", 9), ("lateness/5", 1)], &[])),
            (at(99), point(&[("bytes", 1)], &[])),
        ]);
        let found = columns(ring, at(10).plus_ms(500), at(13), &points, &["bytes", "runs.failed"]);
        assert_eq!(found.from, at(10));
        let expected: [(&str, [Option<f64>; 4]); 8] = [
            ("bytes", [Some(0.0), None, Some(9.0), None]),
            ("errors.dns", [Some(1.0), None, Some(0.0), None]),
            ("lateness.p50", [None, None, Some(5.0), None]),
            ("lateness.p99", [None, None, Some(5.0), None]),
            ("nodes.online", [Some(2.0), None, None, None]),
            ("nodes.online.max", [Some(2.0), None, None, None]),
            ("nodes.online.min", [Some(2.0), None, None, None]),
            ("runs.failed", [Some(0.0), None, Some(0.0), None]),
        ];
        let expected = expected.map(|(name, values)| (name.to_owned(), values.to_vec()));
        assert_eq!(found.values, BTreeMap::from(expected));
        assert!(columns(ring, at(10), at(13), &BTreeMap::new(), &[]).values.is_empty());
        assert_eq!(columns(ring, at(0), at(9_999_999), &BTreeMap::new(), &["bytes"]).values["bytes"].len(), ring.rows as usize);
    }
}
