//! The agent: a program that downloads blocks for a broker.
//!
//! It owns the HTTP clients and the blocks in its hands. It promises to report every request of a block that it took, and
//! to hold on to the report until the broker has accepted it, over any number of lost connections. It runs nothing that
//! the broker names, unless the machine's owner has allowed it in the agent's own settings: see `program`.
//!
//! One thread does it all, in an actix system. The way of a block: `session` takes it in, `holdings` remembers it,
//! `block` downloads it request by request (`download`, `hops`, `attempt`, `content`) with the `clients` of its
//! sites, which connect only where `guard` lets them; `parts` packs the results, `report` delivers each `parcel`. Large
//! bodies wait for `memory`. The requests of a block with a pace begin when its `turn` lets them (`pace`, `paced`).

mod asked;
mod attempt;
mod backoff;
mod block;
mod change_ip;
mod clients;
mod content;
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
mod socket;
#[cfg(test)]
mod tests;
mod turn;

use crate::config::agent::AgentConfig;
use crate::domain::ids::NodeId;
use crate::domain::node::Instance;
use crate::protocol::node::{Block, Holding};
use backoff::Backoff;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::FusedFuture;
use session::End;
use socket::{OpenError, Socket};
use std::future::Future;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Blocks that wait for a free place, for each place. One may well come before the answer to the report that freed it;
/// more than this means that the broker does not count.
const MOST_WAITING: u32 = 3;

/// Reasons for which there is no connection that are said before it is there again.
const MOST_TOLD: usize = 8;

/// Why an agent cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The broker answered 401 or 403.
    #[error("the broker at {broker} refused this agent with status {status}: {}", if *.has_token { "this token is not one of role agent, the clock of this machine is wrong, or the node's id belongs to another token" } else { "the broker needs a token. Give one with --token or WEBLOOM_TOKEN" })]
    Refused {
        /// The broker.
        broker: String,
        /// What it answered.
        status: u16,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The data folder is another agent's.
    #[error("Another agent uses {}. Give each agent its own --data-dir.", dir.display())]
    InUse {
        /// The folder.
        dir: PathBuf,
    },
    /// The node's id is not to be had.
    #[error("the node's id cannot be kept in {}: {why}", path.display())]
    NodeId {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// Runs a step of the launcher of a program: what `webloom launch` does, which only an agent calls.
#[must_use]
pub fn launch(folder: &std::path::Path, step: Option<&std::ffi::OsStr>) -> u8 {
    program::launch::run(folder, step)
}

/// Runs an agent in the current actix system until `stop` is ready. Then no more blocks are taken, those at work get a
/// few seconds to be reported, and the socket is closed.
///
/// A broker that is not reached is tried again for ever.
///
/// # Errors
/// The broker refuses the token, or the node's id cannot be kept.
pub async fn run(config: AgentConfig, stop: impl Future<Output = ()>) -> Result<(), AgentError> {
    let seat = node_id::resolve(&config)?;
    let _ports = port::keep_free(&config.broker);
    let client = socket::client();
    let agent = Rc::new(Agent::new(config, &seat, client.clone()));
    agent.programs.find();
    let ended = agent.stay_connected(&client, pin!(stop.fuse())).await;
    agent.holdings.drop_all();
    ended
}

/// What the rooms of the agent share.
struct Agent {
    config: AgentConfig,
    node_id: NodeId,
    instance: Instance,
    downloader: download::Downloader,
    reporter: report::Reporter,
    holdings: holdings::Holdings,
    programs: Rc<program::Programs>,
    /// Places for blocks at work.
    places: Semaphore,
    /// Places for blocks with a pace.
    sites: Semaphore,
}

impl Agent {
    fn new(config: AgentConfig, seat: &node_id::Seat, client: awc::Client) -> Self {
        Self {
            downloader: download::Downloader::new(&config),
            reporter: report::Reporter::new(&config, client),
            holdings: holdings::Holdings::default(),
            programs: program::Programs::new(&config),
            places: Semaphore::new(config.max_process_count as usize),
            sites: Semaphore::new(config.max_sites as usize),
            node_id: seat.node_id,
            instance: seat.instance,
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
        // Each reason is said once, not with each try.
        let mut told: Vec<String> = Vec::new();
        loop {
            let (number, broker) = brokers.current();
            let address = socket::address(&self.config, broker, (self.node_id, self.instance), &machine);
            let opened = tokio::select! {
                opened = Socket::open(client, &address, patience) => opened,
                () = stop.as_mut() => break,
            };
            match opened {
                Ok(socket) => match session::run(self, &mut machine, socket, stop.as_mut()).await {
                    End::Stopped => return Ok(()),
                    End::Left(why) => {
                        log::warn!("this agent ends and does not come back broker={broker} node={} reason={why}", self.node_id);
                        return Ok(());
                    }
                    End::Lost(why, was_welcome) => {
                        if was_welcome {
                            backoff.reset();
                            told.clear();
                        }
                        if is_news(&mut told, &why) {
                            log::warn!("connection lost, trying on broker={broker} node_id={} reason={why}", self.node_id);
                        }
                    }
                },
                Err(OpenError::Refused(status)) => {
                    return Err(AgentError::Refused { broker: broker.to_string(), status, has_token: self.config.token.is_some() });
                }
                Err(OpenError::Unreachable(why)) => {
                    if is_news(&mut told, &why) {
                        log::warn!("broker not reached, trying on broker={broker} reason={why}");
                    }
                }
            }
            // Another may lead; only when all were tried is there anything to wait for.
            let wait = if brokers.leave(number) { backoff.next_wait() } else { Duration::ZERO };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.as_mut() => break,
            }
        }
        self.drained(&self.ending(false)).await;
        Ok(())
    }

    /// Begins to end: takes nothing new, and tells programs to end unless they are to stay.
    fn ending(&self, ends_kept: bool) -> Ending {
        self.programs.close("this agent is about to end");
        let ends_programs = ends_kept || !self.programs.are_kept();
        let longest = if ends_programs { self.programs.longest_grace() } else { Duration::ZERO };
        if ends_programs {
            self.programs.end_all();
        }
        Ending { since: Instant::now(), longest, ends_programs }
    }

    /// Waits until nothing is held and all is taken by the broker, or has had its time.
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

    /// Waits until no program is at work, unless they are to stay.
    async fn programs_over(&self, ending: &Ending) {
        if ending.ends_programs {
            let _ = tokio::time::timeout_at(ending.since + ending.longest, self.programs.all_over()).await;
        }
    }

    /// Waits until there is nothing left to do, however long it takes.
    async fn emptied(&self) {
        loop {
            self.holdings.emptied().await;
            self.programs.all_settled().await;
            if self.holdings.len() == 0 {
                return;
            }
        }
    }

    /// Takes a block, unless it is held already.
    fn take(self: &Rc<Self>, block: Block, bulk: Option<Bytes>) {
        let holding = socket::holding(&block);
        if !self.holdings.is_news(&holding) {
            log::debug!("a block comes again block_id={} attempt={}", block.block_id, block.attempt);
            return;
        }
        let is_paced = block.pace.is_some();
        let most = if is_paced { self.config.max_sites } else { self.config.max_process_count };
        if self.holdings.count(is_paced) >= (most * (1 + MOST_WAITING)) as usize {
            log::warn!("a block too many is not taken block_id={}", block.block_id);
            return;
        }
        let task = actix_rt::spawn(Rc::clone(self).carry_out(holding.clone(), block, bulk));
        self.holdings.hold(holding, is_paced, task.abort_handle());
    }

    /// From the block to its accepted report.
    async fn carry_out(self: Rc<Self>, holding: Holding, block: Block, bulk: Option<Bytes>) {
        // However it ends: a block that is neither reported nor listed is sent again.
        let _release = Release(&self.holdings, &holding);
        // A site with a pace takes little of the machine, and its time is not to be waited away.
        let places = if block.pace.is_some() { &self.sites } else { &self.places };
        if let Ok(_place) = places.acquire().await {
            let post = |parcel| self.reporter.send(holding.block_id, parcel).boxed_local();
            block::work(&self.downloader, self.node_id, &block, bulk.as_deref(), &post).await;
        }
    }
}

/// It was not said before.
fn is_news(told: &mut Vec<String>, why: &str) -> bool {
    let is_news = told.len() < MOST_TOLD && !told.iter().any(|other| other == why);
    if is_news {
        told.push(why.to_owned());
    }
    is_news
}

/// The end of the agent.
struct Ending {
    since: Instant,
    /// What programs get.
    longest: Duration,
    ends_programs: bool,
}

/// Lets go of a block when it is dropped.
struct Release<'a>(&'a holdings::Holdings, &'a Holding);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}
