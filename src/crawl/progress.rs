//! How far the crawl is: a bar where somebody looks, a line now and then where nobody does.

use super::options::CrawlOptions;
use crate::domain::run::Counters;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows counters on the standard error.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    began: Instant,
    /// Done when it began: after a resume the rate is that of this time.
    before: Option<u64>,
    last_line: Instant,
}

impl Progress {
    pub(super) fn new(options: &CrawlOptions) -> Self {
        // A bar and lines on one terminal would draw over each other.
        let lines_on_terminal = options.output.is_none() && io::stdout().is_terminal();
        let bar = (!options.quiet && !lines_on_terminal && io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
            if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        let quiet = options.quiet || lines_on_terminal;
        Self { bar, quiet, began: Instant::now(), before: None, last_line: Instant::now() }
    }

    pub(super) fn show(&mut self, counters: &Counters) {
        let done = counters.success + counters.error;
        let before = *self.before.get_or_insert(done);
        let rate = (done - before.min(done)) as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let rest = format!("{} left, {} failed, {rate:.0} pages/s", counters.left, counters.error);
        match &self.bar {
            Some(bar) => {
                bar.set_length(counters.total);
                bar.set_position(done);
                bar.set_message(rest);
            }
            None if !self.quiet && self.last_line.elapsed() >= LINE_EVERY => {
                self.last_line = Instant::now();
                say(&format!("{done} done, {rest}"));
            }
            None => {}
        }
    }

    /// Makes room for the summary.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A line on the standard error.
pub(super) fn say(text: &str) {
    // Where that is closed, nobody wants to know.
    let _ = writeln!(io::stderr(), "{text}");
}
