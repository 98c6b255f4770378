//! robots.txt by RFC 9309, with what Google's parser adds: `Crawl-delay` and `Sitemap` beside it, common spelling mistakes,
//! and `index.html` as another name of its folder.
//!
//! [`Robots`] keeps only the groups of one product token. [`judge`] says what a fetch of the file means and for how long.
//! Nothing here fetches. The crates for this (texting_robots, robotstxt, robotxt) do not tell the line that forbids a URL and have no
//! compact form to store, so this is our own.

mod fetch;
mod parse;
mod pattern;
mod rules;

#[cfg(test)]
mod tests;

pub use fetch::{Fetched, Judgement, LEAST_CACHE_MS, MOST_CACHE_MS, MOST_REDIRECTS, cache_ms, judge, robots_url};
pub use parse::{MOST_BYTES, product_token};
pub use pattern::has_part;
pub use rules::{Robots, Verdict};
