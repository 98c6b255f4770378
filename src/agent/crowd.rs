//! How many requests without a pace are in progress at each host: a block that waits for slow answers leaves its slot to another one,
//! whose requests must not add to those at the same host without a limit. It also keeps which origins asked for a pause, so that all blocks of
//! the agent learn it from the first answer.

use crate::domain::ids::Identity;
use serde::Deserialize;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::Notify;
use tokio::time::Instant;
use url::Url;

/// Number of origins with a pause after which the older half is forgotten: the blocks that it concerned have met it long ago.
const MOST_PAUSES: usize = 1_000;

/// A run, and a host or the proxy that leads to it.
pub type HostKey = (Identity, Rc<str>);

/// Requests in progress by host.
#[derive(Default)]
pub struct Crowd {
    counts: RefCell<HashMap<HostKey, usize>>,
    /// A request was refused since the last signal.
    is_awaited: Cell<bool>,
    /// Signals that a host that was full may accept a request.
    pub eased: Notify,
    /// The origins that asked for a pause, and when they did so last.
    pauses: RefCell<HashMap<String, Instant>>,
    /// Signals that another origin asked for a pause.
    pub paused: Notify,
}

impl Crowd {
    /// Counts one more request at a host, until the result is dropped; `None` if `most` are there.
    pub fn enter(self: &Rc<Self>, key: &HostKey, most: usize) -> Option<Visit> {
        let mut counts = self.counts.borrow_mut();
        match counts.get_mut(key) {
            Some(count) if *count >= most => {
                self.is_awaited.set(true);
                return None;
            }
            Some(count) => *count += 1,
            None => drop(counts.insert(key.clone(), 1)),
        }
        Some(Visit { crowd: Rc::clone(self), key: key.clone() })
    }
}

impl Crowd {
    /// An origin asks for a pause.
    pub fn pause(&self, origin: String) {
        let mut pauses = self.pauses.borrow_mut();
        if pauses.len() >= MOST_PAUSES {
            let mut times: Vec<Instant> = pauses.values().copied().collect();
            let (_, middle, _) = times.select_nth_unstable(MOST_PAUSES / 2);
            let middle = *middle;
            pauses.retain(|_, at| *at > middle);
        }
        pauses.insert(origin, Instant::now());
        drop(pauses);
        self.paused.notify_waiters();
    }

    /// The origins that have asked for a pause since a time.
    #[must_use]
    pub fn paused_since(&self, since: Instant) -> Vec<String> {
        self.pauses.borrow().iter().filter(|(_, at)| **at >= since).map(|(origin, _)| origin.clone()).collect()
    }
}

/// A request in progress.
pub struct Visit {
    crowd: Rc<Crowd>,
    key: HostKey,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut counts = self.crowd.counts.borrow_mut();
        if let Some(count) = counts.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
        if self.crowd.is_awaited.replace(false) {
            self.crowd.eased.notify_waiters();
        }
    }
}

#[derive(Deserialize)]
struct Text<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow, default)]
    proxy: Option<Cow<'a, str>>,
}

/// What the connections of a request lead to: its proxy or its host; empty if the request is not valid.
#[must_use]
pub fn host_of(json: &str, proxy: Option<&str>) -> String {
    let Ok(text) = serde_json::from_str::<Text<'_>>(json) else { return String::new() };
    match text.proxy.as_deref().or(proxy).filter(|proxy| !proxy.is_empty()) {
        Some(proxy) => proxy.to_owned(),
        None => Url::parse(&text.url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default(),
    }
}

/// The origin of a request; empty if the request is not valid.
#[must_use]
pub fn origin_of(json: &str) -> String {
    let url = serde_json::from_str::<Text<'_>>(json).ok().and_then(|text| Url::parse(&text.url).ok());
    url.map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_host_is_full_until_a_request_ends() {
        let crowd = Rc::new(Crowd::default());
        let key = |host: &str| (Identity(uuid::Uuid::nil()), Rc::from(host));
        let (first, second) = (crowd.enter(&key("a"), 2), crowd.enter(&key("a"), 2));
        assert!(first.is_some() && second.is_some() && crowd.enter(&key("b"), 2).is_some());
        let mut eased = Box::pin(crowd.eased.notified());
        assert!(eased.as_mut().now_or_never().is_none());
        assert!(crowd.enter(&key("a"), 2).is_none());
        drop(first);
        assert!(eased.now_or_never().is_some() && crowd.enter(&key("a"), 2).is_some());
        drop(second);
        assert!(crowd.counts.borrow().is_empty());
    }

    #[test]
    fn the_last_pauses_are_kept() {
        let crowd = Crowd::default();
        let begin = Instant::now();
        for n in 0..=MOST_PAUSES {
            crowd.pause(n.to_string());
        }
        let last = MOST_PAUSES.to_string();
        let known = crowd.paused_since(begin);
        assert!(known.len() <= MOST_PAUSES && known.contains(&last), "{}", known.len());
        assert!(crowd.paused_since(Instant::now() + std::time::Duration::from_secs(1)).is_empty());
    }

    #[test]
    fn requests_through_a_proxy_share_it() {
        let to = |url: &str, proxy: &str| host_of(&serde_json::json!({ "url": url, "proxy": proxy }).to_string(), Some("http://p:1"));
        assert_eq!(to("http://a.test:80/x", ""), "a.test");
        assert_eq!(to("http://a.test/x", "http://q:2"), "http://q:2");
        assert_eq!(host_of(r#"{"url":"http://b.test/"}"#, Some("http://p:1")), "http://p:1");
        assert_eq!([host_of("{}", None), host_of(r#"{"url":"x"}"#, None)], ["", ""]);
    }
}
