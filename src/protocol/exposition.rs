//! Prometheus' text format, version 0.0.4: metrics with their help, type and samples.

use std::fmt::Write as _;

/// A page of metrics under construction.
#[derive(Debug, Default)]
pub struct Exposition(String);

impl Exposition {
    /// Begins a metric; its samples follow. `kind` is counter, gauge or histogram.
    pub fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// A sample of the metric.
    pub fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (i, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{text}\"", if i == 0 { '{' } else { ',' });
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// A metric with one sample.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }

    /// A histogram: the counts up to each bound, the total count, and the sum.
    pub fn histogram(&mut self, name: &str, help: &str, upto: impl IntoIterator<Item = (f64, u64)>, count: u64, sum: f64) {
        self.metric(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in upto {
            self.sample(&bucket, &[("le", &bound.to_string())], count as f64);
        }
        self.sample(&bucket, &[("le", "+Inf")], count as f64);
        self.sample(&format!("{name}_sum"), &[], sum);
        self.sample(&format!("{name}_count"), &[], count as f64);
    }

    /// The page.
    #[must_use]
    pub fn done(self) -> String {
        self.0
    }
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
