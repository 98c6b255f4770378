//! Builders for a worker's requests.

use crate::domain::fingerprint::Fingerprint;
use crate::protocol::problem::Problem;
use crate::protocol::push::{Request, canonical_url, read_push};
use bytes::Bytes;

impl Request {
    /// A GET of a URL.
    #[must_use]
    pub fn get(url: impl Into<String>) -> Self {
        Self { url: url.into(), ..Self::default() }
    }

    /// A POST of a text; set its type with [`Request::header`].
    #[must_use]
    pub fn post(url: impl Into<String>, body: impl Into<String>) -> Self {
        Self { url: url.into(), method: Some("POST".to_owned()), body: Some(body.into()), ..Self::default() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Sets whether it may be sent more than once, whatever its method: after an error of the site, the network or a node.
    #[must_use]
    pub fn idempotent(mut self, is_so: bool) -> Self {
        self.idempotent = Some(is_so);
        self
    }

    /// Adds a custom value, which comes back with the page.
    #[must_use]
    pub fn meta(mut self, meta: serde_json::Value) -> Self {
        self.meta = Some(meta);
        self
    }

    /// The id that the broker will assign, if the broker would accept it.
    pub(crate) fn check(&self) -> Result<Fingerprint, Problem> {
        let plain = self.method.is_none() && self.headers.is_empty() && self.key.is_none() && !self.dont_filter;
        if plain && self.body.is_none() && self.proxy.is_none() && self.meta.is_none() {
            return Ok(Fingerprint::of("GET", &canonical_url(&self.url)?, b""));
        }
        // Requests with more members are checked by the same code as in the broker.
        let text = serde_json::to_vec(&[self]).map_err(|e| Problem::malformed(e.to_string()))?;
        let batch = read_push(Bytes::from(text))?;
        batch.requests.first().map(|request| request.id).ok_or_else(|| Problem::malformed("an empty push"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_check_gives_the_id_of_the_long_one() {
        let plain = Request::get("HTTP://Example.com:80/a/../b?x=é#part");
        let long = Request { method: Some("get".into()), ..plain.clone() };
        assert_eq!(plain.check(), long.check());
        assert_ne!(plain.check(), Request::post("http://example.com/b?x=é", "").check());
        for bad in [Request::get("nothing"), Request::get("mailto:a@b"), Request::get("http://a/").header("a b", "c")] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
