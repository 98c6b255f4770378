//! The progress of the crawl: a bar on a terminal, otherwise a line now and then.

use super::options::CrawlOptions;
use crate::domain::run::Counters;
use crate::protocol::api::SitesOfRun;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Interval between two lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Shows counters on standard error.
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    /// No counters are shown.
    quiet: bool,
    /// Nothing is shown.
    silent: bool,
    began: Instant,
    /// The count when this process began: after a resume the rate is that of this process.
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
        Self { bar, quiet, silent: options.quiet, began: Instant::now(), before: None, last_line: Instant::now() }
    }

    pub(super) fn show(&mut self, counters: &Counters, sites: Option<SitesOfRun>) {
        let done = counters.success + counters.error;
        let before = *self.before.get_or_insert(done);
        let rate = (done - before.min(done)) as f64 / self.began.elapsed().as_secs_f64().max(0.001);
        let sites = sites.map(|sites| format!(", {}", sites_text(sites))).unwrap_or_default();
        let rest = format!("{} left, {} failed, {rate:.0} pages/s{sites}", counters.left, counters.error);
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

    /// Shows an error or a hold at once.
    pub(super) fn tell(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| say(text)),
            None if !self.silent => say(text),
            None => {}
        }
    }

    /// Clears the space for the summary.
    pub(super) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// The sites that the run tells apart: `12 sites (3 active, 1 held)`.
fn sites_text(SitesOfRun { total, active, held }: SitesOfRun) -> String {
    format!("{total} {} ({active} active, {held} held)", if total == 1 { "site" } else { "sites" })
}

/// Prints a line on standard error.
pub(super) fn say(text: &str) {
    // Ignore a closed standard error.
    let _ = writeln!(io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_sites_is_shown() {
        let text = |total, active, held| sites_text(SitesOfRun { total, active, held });
        assert_eq!((text(12, 3, 1).as_str(), text(1, 1, 0).as_str()), ("12 sites (3 active, 1 held)", "1 site (1 active, 0 held)"));
    }
}
