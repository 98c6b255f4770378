//! Site state that all runs of a broker share: turns at the sites and cached robots.txt files.

use super::context::Times;
use crate::domain::ids::Identity;
use crate::domain::robots::{FORBIDS_MS, Robots};
use crate::domain::sites::{Board, Ended, Outcome, SiteRule};
use crate::domain::time::Timestamp;
use crate::names::Names;
use crate::protocol::block_runs::DomainDelay;
use crate::protocol::node::FetchError;
use crate::protocol::sites::SiteErrorOutput;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of robots.txt files in memory.
const MOST_ROBOTS: usize = 100_000;
/// Fetches of robots.txt in progress, after which those that are over are removed.
const MOST_FETCHES: usize = 1_000;
/// Number of files that are evicted at once, because the search for them takes time.
const ROBOTS_EVICTED: usize = 1_000;
/// Number of hosts with a known address, after which those whose time is over are removed, or all.
const MOST_ADDRESSES: usize = 100_000;
/// How long the address of a host counts, in milliseconds; and how long a lookup that failed is not repeated.
const ADDRESS_MS: i64 = 600_000;
const NO_ADDRESS_MS: i64 = 60_000;
/// Number of domains with a delay, after which those whose time is over are removed.
const MOST_DELAYS: usize = 10_000;
/// Maximum number of sites whose last error is kept.
const MOST_TROUBLES: usize = 10_000;
/// Minimum time for which a node may continue without a message from its broker, in milliseconds.
const LEAST_RIGHT_MS: u64 = 10_000;

/// Possible outcomes of requests to sites.
pub const OUTCOMES: [&str; 8] = ["answered", "too_many_requests", "server_error", "timeout", "refused", "dns", "tls", "robots"];
/// Index of the requests that robots.txt forbids.
const ROBOTS: usize = 7;

/// The index of an outcome in [`OUTCOMES`]; `None` if the outcome is unknown.
fn place(ended: Ended) -> Option<usize> {
    Some(match ended {
        Ended::Answered(429) => 1,
        Ended::Answered(500..=599) => 2,
        Ended::Answered(_) => 0,
        Ended::TimedOut => 3,
        Ended::Refused => 4,
        Ended::Dns => 5,
        Ended::Tls => 6,
        Ended::Unknown => return None,
    })
}

/// The robots.txt rules of an origin, and their expiry by the wall clock.
#[derive(Debug, Clone)]
pub struct KnownRobots {
    /// The rules.
    pub robots: Arc<Robots>,
    /// Expiry time.
    pub until: Timestamp,
    /// Number of consecutive failures to fetch the file.
    pub failures: u32,
    /// Why the last fetch failed.
    pub cause: Option<Arc<FetchError>>,
}

impl KnownRobots {
    /// Whether the file could not be fetched, and still forbids all: when a site may be asked again, the file may be fetched again, too.
    #[must_use]
    pub fn forbids_all(&self, now: Timestamp) -> bool {
        self.robots.is_unreachable() && self.until.plus_ms(FORBIDS_MS) > now
    }
}

/// The last error at a site that has not answered since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The error.
    pub error: Arc<FetchError>,
    /// Number of tries of the request so far; of fetches, if it was robots.txt.
    pub tries: u32,
    /// Whether robots.txt was requested.
    pub is_robots: bool,
    /// When it became known, by the wall clock.
    pub at: Timestamp,
}

impl From<Trouble> for SiteErrorOutput {
    fn from(Trouble { error, tries, is_robots, at }: Trouble) -> Self {
        Self { kind: error.kind, message: error.message.clone(), tries, robots: is_robots, at }
    }
}

/// The address of a host, and until when it counts; `None`: the lookup failed.
type Looked = (Option<IpAddr>, Timestamp);

/// An origin, and the product token of a user agent.
pub type RobotsKey = (Arc<str>, Arc<str>);

/// The longest delay that a robots.txt asks for at each domain.
#[derive(Debug, Default)]
struct Delays {
    /// Each with the number of its last change.
    known: HashMap<Arc<str>, (DomainDelay, u64)>,
    changes: u64,
}

/// See the module documentation.
#[derive(Debug)]
pub struct Sites {
    board: Mutex<Board>,
    robots: Mutex<HashMap<RobotsKey, KnownRobots>>,
    /// The runs that fetch a robots.txt now, each until a time.
    fetches: Mutex<HashMap<RobotsKey, (Identity, Timestamp)>>,
    troubles: Mutex<HashMap<Arc<str>, Trouble>>,
    delays: Mutex<Delays>,
    /// The addresses of hosts whose sites count by address.
    addresses: Mutex<HashMap<Arc<str>, Looked>>,
    /// Resolves their names.
    pub names: Arc<Names>,
    /// The operator's limits.
    pub rules: Vec<SiteRule>,
    requests: [AtomicU64; OUTCOMES.len()],
    /// A node without a message from the broker for this many milliseconds begins no more requests to sites.
    pub right_ms: u64,
}

impl Sites {
    /// The state at the start of a broker.
    #[must_use]
    pub fn new(rules: Vec<SiteRule>, names: Names, times: &Times) -> Self {
        // The right survives two lost heartbeats.
        let right_ms = LEAST_RIGHT_MS.max(times.node_heartbeat * 3);
        Self {
            board: Mutex::new(Board::new(right_ms as i64)),
            robots: Mutex::default(),
            fetches: Mutex::default(),
            troubles: Mutex::default(),
            delays: Mutex::default(),
            addresses: Mutex::default(),
            names: Arc::new(names),
            requests: Default::default(),
            rules,
            right_ms,
        }
    }

    /// The board of turns.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the outcomes of requests.
    pub fn count(&self, outcomes: &[Outcome]) {
        for place in outcomes.iter().filter_map(|outcome| place(outcome.ended)) {
            self.requests[place].fetch_add(1, Relaxed);
        }
    }

    /// Counts requests that robots.txt forbids.
    pub fn count_forbidden(&self, requests: usize) {
        self.requests[ROBOTS].fetch_add(requests as u64, Relaxed);
    }

    /// This broker does not lead: it gets its sites from the leader.
    pub fn borrow_from_leader(&self) {
        *self.board() = Board::of_borrower(self.right_ms as i64);
    }

    /// Requests to sites by outcome, since the start of the broker.
    #[must_use]
    pub fn requests(&self) -> [(&'static str, u64); OUTCOMES.len()] {
        std::array::from_fn(|i| (OUTCOMES[i], self.requests[i].load(Relaxed)))
    }

    /// The cached robots.txt rules of an origin, even if they have expired.
    #[must_use]
    pub fn robots(&self, key: &RobotsKey) -> Option<KnownRobots> {
        self.robots.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Whether a run may fetch a robots.txt: no other run does so now. The right ends at `until` at the latest.
    #[must_use]
    pub fn begin_fetch(&self, key: &RobotsKey, run: Identity, until: Timestamp, now: Timestamp) -> bool {
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        if fetches.get(key).is_some_and(|(other, until)| *other != run && *until > now) {
            return false;
        }
        if fetches.len() >= MOST_FETCHES {
            // Of runs whose actors ended without giving them up.
            fetches.retain(|_, (_, until)| *until > now);
        }
        fetches.insert(key.clone(), (run, until));
        true
    }

    /// A run does not fetch a robots.txt any more; `None`: it fetches none.
    pub fn end_fetch(&self, key: Option<&RobotsKey>, run: Identity) {
        let mut fetches = self.fetches.lock().unwrap_or_else(PoisonError::into_inner);
        match key {
            Some(key) if fetches.get(key).is_some_and(|(other, _)| *other == run) => drop(fetches.remove(key)),
            Some(_) => {}
            None => fetches.retain(|_, (other, _)| *other != run),
        }
    }

    /// A run has ended, and its actor could not give up its turns and fetches.
    pub fn run_gone(&self, run: Identity) {
        self.board().run_gone(run, Timestamp::steady());
        self.end_fetch(None, run);
    }

    /// The address of a host: `None` if it must be looked up, `Some(None)` if there is none.
    #[must_use]
    pub fn address(&self, host: &str, now: Timestamp) -> Option<Option<IpAddr>> {
        let addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        addresses.get(host).filter(|(_, until)| *until > now).map(|(address, _)| *address)
    }

    /// Keeps the result of a lookup. Of several addresses the least is taken, IPv4 first, so that hosts with the same addresses are one site.
    pub fn note_addresses(&self, host: Arc<str>, found: &[IpAddr], now: Timestamp) {
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if addresses.len() >= MOST_ADDRESSES {
            addresses.retain(|_, (_, until)| *until > now);
            if addresses.len() >= MOST_ADDRESSES {
                addresses.clear();
            }
        }
        let address = found.iter().map(|address| address.to_canonical()).min();
        addresses.insert(host, (address, now.plus_ms(if address.is_some() { ADDRESS_MS } else { NO_ADDRESS_MS })));
    }

    /// The robots.txt of one of a domain's hosts asks for a delay. The longest of its hosts counts for all of them. Both times are of the wall
    /// clock.
    pub fn note_delay(&self, domain: Arc<str>, delay_ms: u32, until: Timestamp, now: Timestamp) {
        let Delays { known, changes } = &mut *self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_DELAYS {
            known.retain(|_, (delay, _)| delay.until > now);
        }
        let new = DomainDelay { domain: Arc::clone(&domain), delay_ms, until };
        let counts = |known: &DomainDelay| (delay_ms, until) > (known.delay_ms, known.until) || known.until <= now && *known != new;
        if known.get(&domain).is_none_or(|(known, _)| counts(known)) {
            *changes += 1;
            known.insert(domain, (new, *changes));
        }
    }

    /// Notes delays that runs of other brokers have read.
    pub fn note_delays(&self, delays: Vec<DomainDelay>) {
        for DomainDelay { domain, delay_ms, until } in delays {
            self.note_delay(domain, delay_ms, until, Timestamp::now());
        }
    }

    /// The delays that were noted after the change with this number, and the number of the last change.
    #[must_use]
    pub fn delays_after(&self, number: u64) -> (Vec<DomainDelay>, u64) {
        let delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        if delays.changes == number {
            return (Vec::new(), number);
        }
        let new = delays.known.values().filter(|(_, change)| *change > number);
        (new.map(|(delay, _)| delay.clone()).collect(), delays.changes)
    }

    /// The longest delay that the hosts of a domain ask for; 0: none.
    #[must_use]
    pub fn delay_of(&self, domain: &str, now: Timestamp) -> u32 {
        let delays = self.delays.lock().unwrap_or_else(PoisonError::into_inner);
        delays.known.get(domain).filter(|(delay, _)| delay.until > now).map_or(0, |(delay, _)| delay.delay_ms)
    }

    /// Keeps the last error at a site. If too many sites have one, the oldest are dropped.
    pub fn note_trouble(&self, site: Arc<str>, trouble: Trouble) {
        let mut troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        if troubles.len() >= MOST_TROUBLES && !troubles.contains_key(&site) {
            let mut times: Vec<Timestamp> = troubles.values().map(|trouble| trouble.at).collect();
            let (_, middle, _) = times.select_nth_unstable(MOST_TROUBLES / 2);
            let middle = *middle;
            troubles.retain(|_, trouble| trouble.at > middle);
        }
        troubles.insert(site, trouble);
    }

    /// A site has answered.
    pub fn forget_trouble(&self, site: &str) {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).remove(site);
    }

    /// The last error at a site that has not answered since.
    #[must_use]
    pub fn trouble(&self, site: &str) -> Option<Trouble> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner).get(site).cloned()
    }

    /// Caches the rules.
    pub fn keep_robots(&self, key: RobotsKey, known: KnownRobots) {
        let mut robots = self.robots.lock().unwrap_or_else(PoisonError::into_inner);
        if robots.len() >= MOST_ROBOTS {
            // Evict failed fetches last, because they are not in the store; among the others, evict the earliest expiry first.
            let mut order: Vec<_> = robots.iter().map(|(key, known)| (known.failures > 0, known.until, key.clone())).collect();
            order.select_nth_unstable(ROBOTS_EVICTED);
            for (_, _, key) in &order[..ROBOTS_EVICTED] {
                robots.remove(key);
            }
        }
        robots.insert(key, known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_error_of_a_site_is_kept_until_it_answers() {
        use crate::protocol::node::FetchErrorKind;
        let sites = Sites::new(Vec::new(), Names::default(), &Times::default());
        let trouble = |at: usize| Trouble {
            error: Arc::new(FetchError { kind: FetchErrorKind::Dns, message: "no such host".into(), retryable: true }),
            tries: 1,
            is_robots: true,
            at: Timestamp(at as i64),
        };
        for n in 0..=MOST_TROUBLES {
            sites.note_trouble(format!("host{n}").into(), trouble(n));
        }
        assert_eq!((sites.trouble("host0"), sites.trouble(&format!("host{MOST_TROUBLES}"))), (None, Some(trouble(MOST_TROUBLES))));
        sites.forget_trouble(&format!("host{MOST_TROUBLES}"));
        assert_eq!(sites.trouble(&format!("host{MOST_TROUBLES}")), None);
    }

    #[test]
    fn hosts_with_the_same_addresses_have_the_same_one() {
        let sites = Sites::new(Vec::new(), Names::default(), &Times::default());
        let [a, b, mapped]: [IpAddr; 3] = ["10.0.0.1", "2001:db8::1", "::ffff:10.0.0.1"].map(|text| text.parse().expect("an address"));
        sites.note_addresses("x".into(), &[b, a], Timestamp(0));
        sites.note_addresses("y".into(), &[mapped, b], Timestamp(0));
        sites.note_addresses("z".into(), &[], Timestamp(0));
        let at = |host, now| sites.address(host, Timestamp(now));
        assert_eq!([at("x", 0), at("y", 0), at("z", 0), at("w", 0)], [Some(Some(a)), Some(Some(a)), Some(None), None]);
        assert_eq!((at("z", NO_ADDRESS_MS), at("x", NO_ADDRESS_MS), at("x", ADDRESS_MS)), (None, Some(Some(a)), None));
    }

    #[test]
    fn the_longest_delay_of_a_domain_counts_until_it_expires() {
        let sites = Sites::new(Vec::new(), Names::default(), &Times::default());
        let note = |delay_ms, until, now| sites.note_delay("shop.example".into(), delay_ms, Timestamp(until), Timestamp(now));
        note(2_000, 100, 0);
        note(500, 900, 0);
        let at = |now| sites.delay_of("shop.example", Timestamp(now));
        assert_eq!((at(99), at(100), sites.delay_of("other.example", Timestamp(0))), (2_000, 0, 0));
        note(500, 900, 100);
        assert_eq!(at(899), 500);
        let (all, last) = sites.delays_after(0);
        assert_eq!(all, [DomainDelay { domain: "shop.example".into(), delay_ms: 500, until: Timestamp(900) }]);
        note(500, 900, 200);
        note(400, 950, 200);
        assert_eq!(sites.delays_after(last), (Vec::new(), last), "nothing has changed");
        note(600, 900, 200);
        assert_eq!(sites.delays_after(last).0.len(), 1);
    }

    #[test]
    fn one_run_fetches_a_robots_txt_and_its_right_ends() {
        let sites = Sites::new(Vec::new(), Names::default(), &Times::default());
        let [one, other] = [1, 2].map(|n| Identity(uuid::Uuid::from_u128(n)));
        let (key, far): ((Arc<str>, Arc<str>), _) = (("http://a.test".into(), "bot".into()), ("http://b.test".into(), "bot".into()));
        let (now, until) = (Timestamp(1_000), Timestamp(5_000));
        assert!(sites.begin_fetch(&key, one, until, now) && sites.begin_fetch(&key, one, until, now), "it goes on");
        assert!(!sites.begin_fetch(&key, other, until, now) && sites.begin_fetch(&far, other, until, now));
        sites.end_fetch(Some(&key), other);
        assert!(!sites.begin_fetch(&key, other, until, now), "it has none to end");
        assert!(sites.begin_fetch(&key, other, until, Timestamp(5_000)), "the time is over");
        sites.end_fetch(None, other);
        assert!(sites.begin_fetch(&key, one, until, now) && sites.begin_fetch(&far, one, until, now));
        sites.end_fetch(Some(&key), one);
        assert!(sites.begin_fetch(&key, other, until, now));
    }
}
