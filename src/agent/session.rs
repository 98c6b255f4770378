//! A session: the messages on one socket. Blocks and orders come in; heartbeats and programs' messages go out.

use super::facts::Machine;
use super::socket::Socket;
use super::{Agent, Ending};
use crate::protocol::node::{FromNode, Heartbeat, ToNode};
use bytes::Bytes;
use futures_util::future::FusedFuture;
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, MissedTickBehavior};

/// The silence timeout until the broker sends its own; also the smallest one that the agent uses.
const LEAST_SILENCE: Duration = Duration::from_secs(10);
const LEAST_HEARTBEAT: Duration = Duration::from_millis(10);
/// When a block has left its place, the next heartbeat comes after this time: it may report several.
const EARLY_HEARTBEAT: Duration = Duration::from_millis(200);

/// How a session ended.
#[derive(Debug)]
pub enum End {
    /// The socket is lost: the reason, and whether the broker had sent its welcome.
    Lost(String, bool),
    /// The agent was stopped, and its blocks are reported or the drain time is over.
    Stopped,
    /// The broker ordered the agent to leave, with the reason.
    Left(String),
}

/// What the broker, or the operator of the agent, requested besides work.
enum Course {
    /// Continue.
    On,
    /// Accept nothing new, and stop when no work is left. The reason.
    Drain(String),
    /// Stop soon. The reason, if the broker ordered it.
    End(Ending, Option<String>),
}

/// Disconnects the programs from a session that has ended.
struct Connection<'a>(&'a Agent);

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.0.programs.disconnected();
    }
}

/// Runs until the socket is lost or the agent is stopped.
pub async fn run(agent: &Rc<Agent>, machine: &mut Machine, mut socket: Socket, mut stop: Pin<&mut impl FusedFuture<Output = ()>>) -> End {
    let mut silence = LEAST_SILENCE;
    let mut heard = Instant::now();
    // When all received data had been read.
    let quiet = Cell::new(heard);
    let mut is_welcome = false;
    // Blocks that came since the last welcome.
    let mut received = 0;
    let mut heartbeat = ticks(agent.config.heartbeat);
    let mut is_early = false;
    let mut course = Course::On;
    let (outbox, mut outgoing) = unbounded_channel();
    let _connection = Connection(agent);
    loop {
        let step: Result<(), String> = tokio::select! {
            incoming = noting(socket.next(), &quiet) => {
                heard = Instant::now();
                if incoming.is_ok() {
                    agent.downloader.hearing.hear(quiet.get());
                }
                match incoming {
                    Err(why) => Err(why),
                    Ok(None) => Ok(()),
                    Ok(Some((ToNode::Welcome { heartbeat: every, offline, .. }, _))) => {
                        // It comes again when another broker leads: that one knows nothing of what came before.
                        let is_again = std::mem::replace(&mut is_welcome, true);
                        received = 0;
                        silence = LEAST_SILENCE.max(Duration::from_millis(offline));
                        heartbeat = ticks(agent.config.heartbeat.min(Duration::from_millis(every)));
                        agent.reporter.online.notify_waiters();
                        agent.programs.connected(outbox.clone());
                        let event = if is_again { "another broker leads behind this connection, reporting everything again" } else { "connected" };
                        log::info!("{event} broker={} node_id={}", agent.config.broker, agent.node_id);
                        Ok(())
                    }
                    Ok(Some((message, bulk))) => {
                        received += u64::from(matches!(message, ToNode::Block(_)));
                        receive(agent, message, bulk, &mut course);
                        Ok(())
                    }
                }
            }
            Some(message) = outgoing.recv() => socket.send(&message).await,
            // The first tick comes at once: the broker gets the held blocks before it sends anything again.
            _ = heartbeat.tick() => {
                is_early = false;
                agent.downloader.clients.evict_idle(Instant::now());
                if heard.elapsed() > silence {
                    Err(format!("no message from the broker for {} s", silence.as_secs()))
                } else if is_welcome {
                    beat(agent, machine, &mut socket, received).await
                } else {
                    Ok(())
                }
            }
            () = agent.holdings.left.notified(), if !is_early => {
                heartbeat.reset_after(EARLY_HEARTBEAT.min(heartbeat.period()));
                is_early = true;
                Ok(())
            }
            () = stop.as_mut(), if !matches!(course, Course::End(..)) => {
                course = Course::End(agent.ending(false), None);
                Ok(())
            }
            why = course.run(agent) => {
                // Send the last queued messages.
                while let Ok(message) = outgoing.try_recv() {
                    if socket.send(&message).await.is_err() {
                        break;
                    }
                }
                socket.close().await;
                return why.map_or(End::Stopped, End::Left);
            }
        };
        if let Err(why) = step {
            return match course {
                Course::End(ending, reason) => {
                    drop(socket);
                    agent.drained_without_socket(&ending).await;
                    reason.map_or(End::Stopped, End::Left)
                }
                Course::On | Course::Drain(_) => End::Lost(why, is_welcome),
            };
        }
    }
}

impl Course {
    /// Resolves when the course is complete, with the reason if the broker ordered it.
    async fn run(&self, agent: &Agent) -> Option<String> {
        match self {
            Self::On => std::future::pending().await,
            Self::Drain(why) => {
                agent.emptied().await;
                Some(why.clone())
            }
            Self::End(ending, why) => {
                agent.drained(ending).await;
                why.clone()
            }
        }
    }
}

/// Records the times at which there was nothing to read.
async fn noting<T>(next: impl Future<Output = T>, quiet: &Cell<Instant>) -> T {
    let mut next = pin!(next);
    poll_fn(|context| {
        let polled = next.as_mut().poll(context);
        if polled.is_pending() {
            quiet.set(Instant::now());
        }
        polled
    })
    .await
}

fn ticks(every: Duration) -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(every.max(LEAST_HEARTBEAT));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

async fn beat(agent: &Rc<Agent>, machine: &mut Machine, socket: &mut Socket, received: u64) -> Result<(), String> {
    let load = machine.refresh();
    let holding = agent.holdings.list();
    let process_count = u32::try_from(holding.len() + agent.programs.at_work()).unwrap_or(u32::MAX);
    let programs = Some(agent.programs.list());
    let heartbeat = Heartbeat {
        process_count,
        cpu: load.cpu,
        free_memory: load.free_memory,
        holding: Some(holding),
        received: Some(received),
        programs,
    };
    socket.send(&FromNode::Heartbeat(heartbeat)).await?;
    // The broker need not reply to a heartbeat, but it replies to this: so a dead connection is detected.
    socket.ping().await
}

fn receive(agent: &Rc<Agent>, message: ToNode, bulk: Option<Bytes>, course: &mut Course) {
    let programs = &agent.programs;
    match message {
        ToNode::Block(block) if matches!(course, Course::On) => agent.take(*block, bulk),
        ToNode::Block(block) => log::debug!("ignored a block while stopping block_id={}", block.block_id),
        ToNode::Drop { block_id, attempt } => agent.holdings.drop_block(block_id, attempt),
        ToNode::Error(problem) => log::warn!("broker rejected a message reason={problem}"),
        ToNode::Welcome { .. } => {}
        ToNode::Start(order) => programs.start(*order),
        ToNode::Exit { program, grace, reason } => programs.exit(program, grace, &reason),
        ToNode::ProgramsSettled(settled) => programs.settled(&settled),
        ToNode::OutputTaken { program, next } => programs.taken(&program, next),
        ToNode::Drain { reason } => {
            if matches!(course, Course::On) {
                let why = reason.unwrap_or_else(|| "drained by the broker".to_owned());
                log::info!("broker ordered this agent to drain reason={why}");
                programs.close("this agent is being drained");
                *course = Course::Drain(why);
            }
        }
        ToNode::Leave { reason } => {
            if !matches!(course, Course::End(..)) {
                log::warn!("broker ordered this agent to leave reason={reason}");
                agent.holdings.drop_all();
                *course = Course::End(agent.ending(true), Some(reason));
            }
        }
    }
}
