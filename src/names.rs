//! Resolves the names of sites, for agents and for brokers whose jobs count sites by address. By DNS, with a cache: an answer is kept as long as it allows (TTL), also that there is no such name.
//!
//! `/etc/hosts` and `/etc/resolv.conf` are obeyed, and read again when they have changed. Names without a dot and those in `.local`, which may be known
//! to other sources than DNS, are left to the system's resolver, and so is everything if the setting asks for it.

use crate::domain::name_servers::NameServers;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;

/// Files of the system's configuration.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];
/// Interval between looks at these files.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Maximum number of answers in the cache.
const MOST_ANSWERS: u64 = 16_384;
/// Maximum number of lookups in progress. Others wait.
const MOST_LOOKUPS: usize = 64;

/// See the module documentation.
#[derive(Debug)]
pub struct Names {
    servers: NameServers,
    dns: Mutex<Option<Dns>>,
    /// Each query has a socket of its own.
    lookups: Semaphore,
}

struct Dns {
    /// `None`: the name servers are not known, and the system resolves all names.
    resolver: Option<TokioResolver>,
    files: [Option<SystemTime>; FILES.len()],
    looked: Instant,
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dns").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Default for Names {
    fn default() -> Self {
        Self::new(NameServers::default())
    }
}

impl Names {
    /// An empty cache.
    #[must_use]
    pub fn new(servers: NameServers) -> Self {
        Self { servers, dns: Mutex::default(), lookups: Semaphore::new(MOST_LOOKUPS) }
    }

    /// The addresses of a host. Call it within a tokio runtime.
    ///
    /// # Errors
    /// There is no such name, it has no address, or no name server answers.
    pub async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        match self.dns(host) {
            Some(dns) => match self.within(dns.lookup_ip(host)).await {
                Ok(found) => Ok(found.iter().collect()),
                Err(error) => Err(io::Error::other(words(&error))),
            },
            None => Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect()),
        }
    }

    /// Waits for its turn among the lookups.
    async fn within<T>(&self, lookup: impl Future<Output = T>) -> T {
        // It is never closed.
        let _turn = self.lookups.acquire().await;
        lookup.await
    }

    /// The resolver for this host; `None`: the system's.
    fn dns(&self, host: &str) -> Option<TokioResolver> {
        let name = host.trim_end_matches('.');
        let is_local = !name.contains('.') || name.rsplit('.').next().is_some_and(|last| last.eq_ignore_ascii_case("local"));
        if is_local || self.servers == NameServers::System || host.parse::<IpAddr>().is_ok() {
            return None;
        }
        let mut dns = self.dns.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = dns.as_mut().is_none_or(|dns| dns.has_changed());
        if is_old {
            // The times come first: a change after them is noticed.
            let (files, looked) = (times(), Instant::now());
            let found = resolver(&self.servers);
            let found = found.inspect_err(|error| log::warn!("name servers unknown, names are resolved by the system error={error}"));
            *dns = Some(Dns { resolver: found.ok(), files, looked });
        }
        dns.as_ref().and_then(|dns| dns.resolver.clone())
    }
}

impl Dns {
    fn has_changed(&mut self) -> bool {
        if self.looked.elapsed() < LOOK_EVERY {
            return false;
        }
        self.looked = Instant::now();
        self.files != times()
    }
}

fn times() -> [Option<SystemTime>; FILES.len()] {
    FILES.map(|file| std::fs::metadata(file).and_then(|file| file.modified()).ok())
}

fn resolver(servers: &NameServers) -> Result<TokioResolver, NetError> {
    let mut builder = match servers {
        NameServers::Listed(servers) => {
            let servers = servers.iter().map(|server| name_server(*server)).collect();
            TokioResolver::builder_with_config(ResolverConfig::from_parts(None, Vec::new(), servers), TokioRuntimeProvider::default())
        }
        NameServers::Configured | NameServers::System => TokioResolver::builder_tokio()?,
    };
    let options = builder.options_mut();
    options.cache_size = MOST_ANSWERS;
    builder.build()
}

fn name_server(server: SocketAddr) -> NameServerConfig {
    let mut config = NameServerConfig::udp_and_tcp(server.ip());
    for connection in &mut config.connections {
        connection.port = server.port();
    }
    config
}

fn words(error: &NetError) -> String {
    if error.is_nx_domain() {
        "there is no such name".to_owned()
    } else if error.is_no_records_found() {
        "the name has no address".to_owned()
    } else {
        format!("the name servers gave no answer: {error}")
    }
}
