//! robots.txt by RFC 9309, with the extensions of Google's parser: `Crawl-delay` and `Sitemap`, common spelling mistakes,
//! and `index.html` as another name of its folder.
//!
//! [`Robots`] keeps only the groups of one product token. [`judge`] decides what a fetch of the file means and for how long. Nothing here
//! fetches. The existing crates (texting_robots, robotstxt, robotxt) do not report the line that forbids a URL and have no compact form to
//! store, so this is our own parser.

mod fetch;
mod parse;
mod pattern;
mod rules;

#[cfg(test)]
mod tests;

pub use fetch::{FORBIDS_MS, Fetched, MOST_REDIRECTS, cache_ms, judge, robots_url};
pub use parse::product_token;
pub use pattern::has_part;
pub use rules::{Robots, Verdict};
