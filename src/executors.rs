//! The brokers that execute runs, as answers about these runs name them. A client calls them directly, so that the leader need not pass its
//! calls on. It does so only while it reaches them: else the calls go where all others go.

use crate::domain::ids::Identity;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use url::Url;

/// How long a broker may need to answer a call that asks nothing.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two looks whether a broker that owes an answer still lives.
const LOOK: Duration = if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };
/// After this time a broker that was not reached is tried again.
const AGAIN: Duration = Duration::from_secs(60);
/// The number of runs that are remembered.
const MOST: usize = 10_000;

/// Whether this client reaches a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// It is being tried.
    Tried,
    Yes,
    /// It was not reached at this time.
    No(Instant),
}

#[derive(Debug, Default)]
struct Known {
    by_run: HashMap<Identity, Url>,
    brokers: HashMap<Url, Reach>,
}

/// See the module documentation. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Executors(Arc<Mutex<Known>>);

impl Executors {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The broker to call about a run; `None`: the one to which all other calls go.
    #[must_use]
    pub fn of(&self, run: Identity) -> Option<Url> {
        let known = self.known();
        known.by_run.get(&run).filter(|url| known.brokers.get(url) == Some(&Reach::Yes)).cloned()
    }

    /// A broker has answered a call about a run. `asked`: its address; `named`: the broker that executes the run, by the answer's header.
    /// Returns a broker that is to be tried: then call [`Self::tried`].
    fn answered(&self, run: Identity, asked: &Url, named: Option<&str>) -> Option<Url> {
        let mut known = self.known();
        let Some(url) = named.and_then(|named| usable(asked, named)) else {
            known.by_run.remove(&run);
            return None;
        };
        if known.by_run.len() >= MOST {
            known.by_run.clear();
        }
        known.by_run.insert(run, url.clone());
        match known.brokers.get(&url) {
            Some(Reach::Yes | Reach::Tried) => None,
            Some(Reach::No(at)) if at.elapsed() < AGAIN => None,
            Some(Reach::No(_)) | None => {
                known.brokers.insert(url.clone(), Reach::Tried);
                Some(url)
            }
        }
    }

    /// As [`Self::answered`], with the header of an answer. Tries a broker that is new, beside the calls.
    pub fn note(&self, client: &awc::Client, run: Identity, asked: &Url, named: Option<&str>) {
        let Some(url) = self.answered(run, asked, named) else { return };
        let (client, executors) = (client.clone(), self.clone());
        drop(actix_rt::spawn(async move { executors.tried(&url, reaches(&client, &url).await) }));
    }

    /// A broker was tried.
    pub fn tried(&self, url: &Url, is_reached: bool) {
        self.known().brokers.insert(url.clone(), if is_reached { Reach::Yes } else { Reach::No(Instant::now()) });
    }
}

/// The address of a broker that another one names. A client that uses TLS goes on to use it. A broker that names an address of its own machine
/// means another machine than that of the client, unless the client has reached it there.
fn usable(asked: &Url, named: &str) -> Option<Url> {
    let url = Url::parse(&format!("{}/", named.trim_end_matches('/'))).ok()?;
    let is_as_safe = url.scheme() == "https" || url.scheme() == "http" && asked.scheme() == "http";
    (is_as_safe && (is_local(asked) || !is_local(&url))).then_some(url)
}

/// Whether an address is one of this machine.
#[must_use]
pub fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    host == "localhost" || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

/// Whether a broker answers.
async fn reaches(client: &awc::Client, url: &Url) -> bool {
    let answer = client.get(format!("{}healthz", url.as_str())).send();
    matches!(tokio::time::timeout(PATIENCE, answer).await, Ok(Ok(answer)) if answer.status().is_success())
}

/// Completes when a broker that owes an answer does not live any more.
pub fn dies(client: &awc::Client, url: Url) -> impl Future<Output = ()> + use<> {
    let client = client.clone();
    async move {
        loop {
            tokio::time::sleep(LOOK).await;
            if !reaches(&client, &url).await {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn a_broker_is_called_once_it_was_reached() {
        let (executors, run, asked) = (Executors::default(), Identity::random(), url("http://10.0.0.5:1/"));
        let (named, second) = (url("http://10.0.0.6:1"), url("http://10.0.0.7:1"));
        assert_eq!(executors.of(run), None);
        assert_eq!(executors.answered(run, &asked, Some("http://10.0.0.6:1")), Some(named.clone()));
        assert_eq!((executors.of(run), executors.answered(run, &asked, Some("http://10.0.0.6:1"))), (None, None), "it is being tried");
        executors.tried(&named, true);
        assert_eq!(executors.of(run), Some(named.clone()));
        assert_eq!(executors.of(Identity::random()), None);
        // The run moves, and is then at the broker that is asked.
        assert_eq!(executors.answered(run, &named, Some("http://10.0.0.7:1")), Some(second.clone()));
        executors.tried(&second, false);
        assert_eq!((executors.of(run), executors.answered(run, &asked, Some("http://10.0.0.7:1"))), (None, None), "not again at once");
        assert_eq!((executors.answered(run, &asked, Some("http://10.0.0.6:1")), executors.of(run)), (None, Some(named.clone())));
        assert_eq!((executors.answered(run, &asked, None), executors.of(run)), (None, None));
        executors.tried(&named, false);
        assert_eq!((executors.answered(run, &asked, Some("http://10.0.0.6:1")), executors.of(run)), (None, None));
    }

    #[test]
    fn an_address_that_leads_elsewhere_or_loses_the_secret_is_not_called() {
        let is_usable = |asked, named| usable(&url(asked), named).is_some();
        assert!(is_usable("http://a/", "http://b:1") && is_usable("http://a/", "https://b:1") && is_usable("https://a/", "https://b:1"));
        assert!(is_usable("http://127.0.0.1:1/", "http://127.0.0.1:2") && is_usable("http://localhost:1/", "http://b:2"));
        assert!(!is_usable("https://a/", "http://b:1"), "the token would not be secret");
        assert!(!is_usable("http://a/", "http://127.0.0.1:1") && !is_usable("http://a/", "http://[::1]:1"), "that is another machine");
        assert!(!is_usable("http://a/", "ftp://b") && !is_usable("http://a/", "b:1") && !is_usable("http://a/", ""));
    }
}
