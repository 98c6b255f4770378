//! Prometheus' text format, version 0.0.4: metrics with their help, type and samples.

use std::fmt::Write as _;

/// A page of metrics under construction.
#[derive(Debug, Default)]
pub struct Exposition(Vec<Metric>);

/// A metric with its samples.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// counter, gauge or histogram.
    pub kind: String,
    /// Its meaning.
    pub help: String,
    /// Labels and value of each sample; none of a histogram.
    pub samples: Vec<(Vec<(String, String)>, f64)>,
    /// The values of a histogram.
    pub histogram: Option<Counts>,
}

/// The values of a histogram.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// Each bound with the number of values up to it.
    pub upto: Vec<(f64, u64)>,
    /// The number of values.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl Exposition {
    /// Begins a metric; its samples follow. `kind` is counter, gauge or histogram.
    pub fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let (name, kind, help) = (name.to_owned(), kind.to_owned(), help.to_owned());
        self.0.push(Metric { name, kind, help, samples: Vec::new(), histogram: None });
    }

    /// A sample of the metric that was begun last.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let Some(metric) = self.0.last_mut() else { return };
        debug_assert_eq!(metric.name, name, "a sample follows its metric");
        let labels = labels.iter().map(|(label, text)| ((*label).to_owned(), (*text).to_owned()));
        metric.samples.push((labels.collect(), value));
    }

    /// A metric with one sample.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A histogram: the counts up to each bound, the total count, and the sum.
    pub fn histogram(&mut self, name: &str, help: &str, upto: impl IntoIterator<Item = (f64, u64)>, count: u64, sum: f64) {
        self.metric(name, "histogram", help);
        if let Some(metric) = self.0.last_mut() {
            metric.histogram = Some(Counts { upto: upto.into_iter().collect(), count, sum });
        }
    }

    /// The metrics, for another format.
    #[must_use]
    pub fn into_metrics(self) -> Vec<Metric> {
        self.0
    }

    /// The page.
    #[must_use]
    pub fn done(self) -> String {
        let mut page = String::new();
        for Metric { name, kind, help, samples, histogram } in &self.0 {
            let help = help.replace('\\', "\\\\").replace('\n', "\\n");
            // Writing to a string cannot fail.
            let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            for (labels, value) in samples {
                write_sample(&mut page, name, labels.iter().map(|(label, text)| (label.as_str(), text.as_str())), *value);
            }
            if let Some(Counts { upto, count, sum }) = histogram {
                let bounds = upto.iter().map(|(bound, count)| (bound.to_string(), *count));
                let bucket = format!("{name}_bucket");
                for (bound, count) in bounds.chain([("+Inf".to_owned(), *count)]) {
                    write_sample(&mut page, &bucket, [("le", bound.as_str())], count as f64);
                }
                write_sample(&mut page, &format!("{name}_sum"), [], *sum);
                write_sample(&mut page, &format!("{name}_count"), [], *count as f64);
            }
        }
        page
    }
}

fn write_sample<'a>(page: &mut String, name: &str, labels: impl IntoIterator<Item = (&'a str, &'a str)>, value: f64) {
    page.push_str(name);
    let mut open = '{';
    for (label, text) in labels {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(page, "{open}{label}=\"{text}\"");
        open = ',';
    }
    if open == ',' {
        page.push('}');
    }
    let _ = writeln!(page, " {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_a_line_is_written_otherwise() {
        let mut page = Exposition::default();
        page.metric("m", "gauge", "one\nline \\");
        page.sample("m", &[("job", "a \"b\"\\\nc"), ("n", "1")], 0.25);
        page.histogram("h", "x", [(0.001, 1), (60.0, 2)], 3, 70.5);
        let expected = [
            "# HELP m one\\nline \\\\",
            "# TYPE m gauge",
            "m{job=\"a \\\"b\\\"\\\\\\nc\",n=\"1\"} 0.25",
            "# HELP h x",
            "# TYPE h histogram",
            "h_bucket{le=\"0.001\"} 1",
            "h_bucket{le=\"60\"} 2",
            "h_bucket{le=\"+Inf\"} 3",
            "h_sum 70.5",
            "h_count 3",
            "",
        ];
        assert_eq!(page.done(), expected.join("\n"));
    }
}
