//! The agent: a program that downloads blocks for a broker.
//!
//! It owns the HTTP clients and its blocks. It promises to report every request of an accepted block, and to keep the report until the
//! broker has accepted it, over any number of lost connections. It runs no program that the broker names unless the machine's owner has
//! allowed it in the agent's own settings: see `program`.
//!
//! One thread runs everything, in an actix system. The path of a block: `session` receives it, `holdings` lists it, `block` downloads it
//! request by request (`download`, `hops`, `attempt`, `content`) with the `clients` of its sites, which connect only where `guard`
//! permits; `parts` packs the results, `report` delivers each `parcel`. Large bodies wait for `memory`. In a block with a pace, `turn`
//! decides when requests begin (`pace`, `paced`); in one without, `slots` does (`unpaced`, `crowd`). `trace` makes a span of it.

mod asked;
mod attempt;
mod block;
mod change_ip;
mod clients;
mod content;
mod crowd;
mod download;
mod facts;
mod failure;
mod guard;
mod holdings;
mod hops;
mod memory;
mod node_id;
mod pace;
mod paced;
mod parcel;
mod parts;
mod port;
mod program;
mod report;
mod sending;
mod session;
mod slots;
mod socket;
#[cfg(test)]
mod tests;
mod trace;
mod turn;
mod unpaced;

use crate::config::agent::AgentConfig;
use crate::domain::backoff::Backoff;
use crate::domain::ids::NodeId;
use crate::domain::node::Instance;
use crate::protocol::node::{Block, Holding};
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use session::End;
use socket::{OpenError, Socket};
use std::cell::Cell;
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;
pub use trace::Sink;

/// Blocks that may wait for each slot. A block may arrive before the response to the report that freed its slot; more waiting blocks than
/// this mean that the broker miscounts.
const MOST_WAITING: u32 = 3;

/// Longest wait between tries while the broker rejects the token of an agent that was connected: rejected tokens count against the address
/// that they come from.
const MOST_REFUSED_WAIT: Duration = Duration::from_secs(30);

/// Number of different reasons for a lost connection that are logged before the next success.
const MOST_TOLD: usize = 8;

/// Why an agent cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The broker responded with 401 or 403.
    #[error("the broker at {broker} refused this agent with status {status}: {}", if *.has_token { "this token is not one of role agent, the clock of this machine is wrong, or the node's id belongs to another token" } else { "the broker needs a token. Give one with --token or WEBLOOM_TOKEN" })]
    Refused {
        /// The broker.
        broker: String,
        /// The status of the response.
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// Another agent uses the data folder.
    #[error("Another agent uses {}. Give each agent its own --data-dir.", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// The node's id could not be stored or read.
    #[error("the node's id cannot be kept in {}: {why}", path.display())]
    NodeId {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Runs a step of a program's launcher: implements `webloom launch`, which only an agent calls.
#[must_use]
pub fn launch(folder: &std::path::Path, step: Option<&std::ffi::OsStr>) -> u8 {
    program::launch::run(folder, step)
}

/// Runs an agent in the current actix system until `stop` resolves. Then it accepts no more blocks, waits a few seconds for the reports
/// of current ones, and closes the socket. `sink` takes the spans of what it did, if they are sent to a collector.
///
/// It retries an unreachable broker forever, and one that rejects the token after this agent was connected with it.
///
/// # Errors
/// The broker rejects the token at the start, or the node's id cannot be stored.
pub async fn run(config: AgentConfig, sink: Option<Sink>, stop: impl Future<Output = ()>) -> Result<(), AgentError> {
    let identity = node_id::resolve(&config)?;
    for warning in program::warnings(&config.programs, nix::unistd::Uid::effective().is_root()) {
        log::warn!("{warning}");
    }
    let _ports = port::keep_free(&config.broker);
    let client = socket::client();
    let agent = Rc::new(Agent::new(config, &identity, client.clone(), sink));
    agent.programs.find();
    let ended = agent.stay_connected(&client, pin!(stop.fuse())).await;
    agent.holdings.drop_all();
    ended
}

/// The shared state of the agent.
struct Agent {
    config: AgentConfig,
    node_id: NodeId,
    instance: Instance,
    downloader: download::Downloader,
    reporter: report::Reporter,
    holdings: holdings::Holdings,
    programs: Rc<program::Programs>,
    /// Slots for blocks without a pace.
    slots: Semaphore,
    /// Slots for blocks with a pace.
    sites: Semaphore,
    /// Limits the blocks that have left their slots: the broker counts them nowhere.
    waiting: Semaphore,
    sink: Option<Sink>,
}

impl Agent {
    fn new(config: AgentConfig, identity: &node_id::NodeIdentity, client: awc::Client, sink: Option<Sink>) -> Self {
        Self {
            downloader: download::Downloader::new(&config),
            reporter: report::Reporter::new(&config, client),
            holdings: holdings::Holdings::default(),
            programs: program::Programs::new(&config, identity.node_id, sink.clone()),
            slots: Semaphore::new(config.max_process_count as usize),
            sites: Semaphore::new(config.max_sites as usize),
            waiting: Semaphore::new(config.max_sites as usize),
            node_id: identity.node_id,
            instance: identity.instance,
            sink,
            config,
        }
    }

    async fn stay_connected(
        self: &Rc<Self>,
        client: &awc::Client,
        mut stop: Pin<&mut impl FusedFuture<Output = ()>>,
    ) -> Result<(), AgentError> {
        let mut machine = facts::Machine::new();
        let brokers = &self.config.broker;
        let patience = if brokers.are_several() { socket::BRIEF_CONNECT_TIMEOUT } else { socket::CONNECT_TIMEOUT };
        let mut backoff = Backoff::new(self.config.waits.reconnect, self.config.waits.reconnect_most);
        let mut refused_backoff = Backoff::new(self.config.waits.reconnect, MOST_REFUSED_WAIT);
        let mut was_connected = false;
        // Log each reason once, not at each retry.
        let mut told: Vec<String> = Vec::new();
        loop {
            let (number, broker) = brokers.current();
            let mut is_refused = false;
            let address = socket::address(&self.config, broker, (self.node_id, self.instance), &machine);
            let opened = tokio::select! {
                opened = Socket::open(client, &address, self.config.token.as_deref(), patience) => opened,
                () = stop.as_mut() => break,
            };
            match opened {
                Ok(socket) => match session::run(self, &mut machine, socket, stop.as_mut()).await {
                    End::Stopped => return Ok(()),
                    End::Left(why) => {
                        log::warn!("broker ordered this agent to leave broker={broker} node={} reason={why}", self.node_id);
                        return Ok(());
                    }
                    End::Lost(why, was_welcome) => {
                        if was_welcome {
                            was_connected = true;
                            backoff.reset();
                            refused_backoff.reset();
                            told.clear();
                        }
                        if is_news(&mut told, &why) {
                            log::warn!("connection lost, retrying broker={broker} node_id={} reason={why}", self.node_id);
                        }
                    }
                },
                // The token was right before: it may come back to the token file, and the work here goes on until then.
                Err(OpenError::Refused(401)) if was_connected => {
                    let why = "status 401: the broker does not have this agent's token any more";
                    if is_news(&mut told, why) {
                        log::warn!("broker rejects the token, retrying broker={broker} node_id={} reason={why}", self.node_id);
                    }
                    is_refused = true;
                }
                Err(OpenError::Refused(status)) => {
                    return Err(AgentError::Refused { broker: broker.to_string(), status, has_token: self.config.token.is_some() });
                }
                Err(OpenError::Unreachable(why)) => {
                    if is_news(&mut told, &why) {
                        log::warn!("broker not reached, retrying broker={broker} reason={why}");
                    }
                }
            }
            // Another broker may lead; wait only after all were tried.
            let backoff = if is_refused { &mut refused_backoff } else { &mut backoff };
            let wait = if brokers.leave(number) { backoff.next_wait() } else { Duration::ZERO };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.as_mut() => break,
            }
        }
        self.drained_without_socket(&self.ending(false)).await;
        Ok(())
    }

    /// Begins to stop: accepts nothing new, and asks programs to end unless they should stay.
    fn ending(&self, ends_kept: bool) -> Ending {
        self.programs.close("this agent is stopping");
        let ends_programs = ends_kept || !self.programs.are_kept();
        let longest = if ends_programs { self.programs.longest_grace() } else { Duration::ZERO };
        if ends_programs {
            self.programs.end_all();
        }
        Ending { since: Instant::now(), longest, ends_programs }
    }

    /// Waits until nothing is held and the broker has accepted everything, or the drain time is over.
    async fn drained(&self, ending: &Ending) {
        let quiet = ending.since + self.config.waits.drain;
        if ending.ends_programs {
            self.programs_over(ending).await;
            let quiet = quiet.max(self.programs.last_end() + self.config.waits.drain);
            let _ = tokio::time::timeout_at(quiet, async { tokio::join!(self.programs.all_settled(), self.holdings.emptied()) }).await;
        } else {
            let _ = tokio::time::timeout_at(quiet, self.holdings.emptied()).await;
        }
    }

    /// The same without a socket. Results need none. The next agent in this directory, if any, reports the ends of programs.
    async fn drained_without_socket(&self, ending: &Ending) {
        let quiet = ending.since + self.config.waits.drain;
        let _ = tokio::join!(self.programs_over(ending), tokio::time::timeout_at(quiet, self.holdings.emptied()));
    }

    /// Waits until no program is running, unless programs should stay.
    async fn programs_over(&self, ending: &Ending) {
        if ending.ends_programs {
            let _ = tokio::time::timeout_at(ending.since + ending.longest, self.programs.all_over()).await;
        }
    }

    /// Waits until there is no work left, without a time limit.
    async fn emptied(&self) {
        loop {
            self.holdings.emptied().await;
            self.programs.all_settled().await;
            if self.holdings.len() == 0 {
                return;
            }
        }
    }

    /// Accepts a block, unless it is already held.
    fn take(self: &Rc<Self>, block: Block, bulk: Option<Bytes>) {
        let holding = socket::holding(&block);
        if !self.holdings.is_news(&holding) {
            log::debug!("block is already held block_id={} attempt={}", block.block_id, block.attempt);
            return;
        }
        let is_paced = block.pace.is_some();
        let most = if is_paced { self.config.max_sites } else { self.config.max_process_count };
        if self.holdings.count(is_paced) >= (most * (1 + MOST_WAITING)) as usize {
            log::warn!("block rejected, all slots and the waiting queue are full block_id={}", block.block_id);
            return;
        }
        let task = actix_rt::spawn(Rc::clone(self).carry_out(holding.clone(), block, bulk));
        self.holdings.hold(holding, is_paced, task.abort_handle());
    }

    /// Processes a block until its report is accepted.
    async fn carry_out(self: Rc<Self>, holding: Holding, block: Block, bulk: Option<Bytes>) {
        // Released in every case: the broker resends a block that is neither reported nor listed.
        let _release = Release(&self.holdings, &holding);
        let mut trace = trace::BlockTrace::new(self.sink.as_ref(), &block, self.node_id);
        // A site with a pace uses little of the machine, so its block does not wait for the other slots.
        let slots = if block.pace.is_some() { &self.sites } else { &self.slots };
        if let Ok(permit) = slots.acquire().await {
            trace.begin();
            let post = |parcel| self.reporter.send(holding.block_id, parcel).boxed_local();
            let permit = Cell::new(Some(permit));
            // A block that only waits uses little of the machine, too.
            let leave = || match self.waiting.try_acquire() {
                Ok(waiting) => {
                    permit.set(Some(waiting));
                    self.holdings.leave(&holding);
                    true
                }
                Err(_) => false,
            };
            let ports = block::Ports { post: &post, leave: &leave };
            let work = block::work(&self.downloader, self.node_id, &block, bulk.as_deref(), ports).await;
            trace.end(work);
        }
    }
}

/// Whether this reason was not logged before.
fn is_news(told: &mut Vec<String>, why: &str) -> bool {
    let is_news = told.len() < MOST_TOLD && !told.iter().any(|other| other == why);
    if is_news {
        told.push(why.to_owned());
    }
    is_news
}

/// A stop of the agent.
struct Ending {
    since: Instant,
    /// The longest time that programs get.
    longest: Duration,
    ends_programs: bool,
}

/// Releases a block when dropped.
struct Release<'a>(&'a holdings::Holdings, &'a Holding);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}
