//! The broker addresses of a client: one, or several if one of several brokers leads.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::Notify;
use url::Url;

/// Addresses, and which of them is currently used. Clones share this state.
#[derive(Clone)]
pub struct Addresses(Arc<Inner>);

struct Inner {
    all: Vec<Url>,
    current: AtomicUsize,
    left: Notify,
}

impl Addresses {
    fn of(all: Vec<Url>) -> Self {
        Self(Arc::new(Inner { all, current: AtomicUsize::new(0), left: Notify::new() }))
    }

    /// The current address, and its number for [`Addresses::leave`].
    #[must_use]
    pub fn current(&self) -> (usize, &Url) {
        let number = self.0.current.load(Relaxed) % self.0.all.len();
        (number, &self.0.all[number])
    }

    /// The address with this number did not answer or does not lead: switches to the next one, unless another caller has already
    /// switched. Returns true when it is back at the first address, so that all were tried.
    pub fn leave(&self, number: usize) -> bool {
        let next = (number + 1) % self.0.all.len();
        // If another caller switched meanwhile, its choice is newer.
        if next != number && self.0.current.compare_exchange(number, next, Relaxed, Relaxed).is_ok() {
            self.0.left.notify_waiters();
        }
        next == 0
    }

    /// Completes when the address with this number is no longer current.
    pub async fn left(&self, number: usize) {
        loop {
            let left = self.0.left.notified();
            if self.current().0 != number {
                return;
            }
            left.await;
        }
    }

    /// All addresses.
    pub fn all(&self) -> impl Iterator<Item = &Url> {
        self.0.all.iter()
    }

    /// Whether there is more than one.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.0.all.len() > 1
    }
}

impl FromStr for Addresses {
    type Err = String;

    /// Parses addresses separated by commas. Their paths get a trailing `/`, and their queries are removed. The error contains the
    /// address that is not HTTP, and the reason.
    fn from_str(text: &str) -> Result<Self, String> {
        let all: Result<Vec<Url>, String> = text.split(',').map(|one| address(one.trim())).collect();
        Ok(Self::of(all?))
    }
}

impl fmt::Display for Addresses {
    /// The current address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.current().1.as_str())
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all().map(Url::as_str)).finish()
    }
}

fn address(text: &str) -> Result<Url, String> {
    let wrong = |why: &str| format!("`{text}`: {why}");
    const EXPECTED: &str = "expected a URL, for example http://127.0.0.1:55626";
    // `host:55626` would parse as a URL with the scheme `host`.
    if !text.is_empty() && !text.contains("://") && Url::parse(&format!("http://{text}")).is_ok() {
        return Err(wrong(&format!("{EXPECTED}; did you mean http://{text}?")));
    }
    let mut url = Url::parse(text).map_err(|_| wrong(EXPECTED))?;
    match url.scheme() {
        "http" | "https" if url.username().is_empty() && url.password().is_none() => {}
        "http" | "https" => return Err(wrong("must not contain a user name or password: use --token")),
        other => return Err(wrong(&format!("the scheme must be http or https, not {other}"))),
    }
    url.set_query(None);
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        let path = format!("{}/", url.path());
        url.set_path(&path);
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_tried_in_turn() {
        let addresses: Addresses = "http://a:1, http://b:2/x?y".parse().expect("two");
        assert_eq!(addresses.to_string(), "http://a:1/");
        assert!(!addresses.leave(0));
        assert_eq!(addresses.current().1.as_str(), "http://b:2/x/");
        assert!(!addresses.leave(0), "somebody else has left it");
        assert_eq!(addresses.current().0, 1);
        assert!(addresses.leave(1), "all were tried");
        assert_eq!(addresses.clone().current().0, 0);
    }

    #[test]
    fn one_that_is_none_is_named() {
        for (text, why) in [
            ("http://a,,http://b", "``: "),
            ("ftp://x/", "`ftp://x/`: "),
            ("http://u:p@x", "password"),
            ("", "``: "),
            ("host:1", "did you mean http://host:1?"),
            ("127.0.0.1:1", "http://127.0.0.1:1?"),
            ("host/", "http://host/?"),
        ] {
            let error = text.parse::<Addresses>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
