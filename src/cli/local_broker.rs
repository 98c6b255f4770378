//! A broker and an agent in this process, each on its own thread with its own actix system: the same programs as in a real fleet.

use crate::agent;
use crate::broker::Broker;
use crate::config::agent::AgentConfig;
use crate::config::broker::BrokerConfig;
use crate::telemetry::Telemetry;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A program on a thread, with a stop signal.
struct Room {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Room {
    async fn end(self) {
        // Its thread may have ended by itself; `join` returns the result.
        let _ = self.stop.send(());
        let joined = tokio::task::spawn_blocking(move || self.thread.join()).await;
        if !matches!(joined, Ok(Ok(()))) {
            log::error!("broker or agent thread panicked");
        }
    }
}

/// The broker and, if one was started, its agent.
pub struct LocalBroker {
    /// Where the broker listens.
    pub address: SocketAddr,
    broker: Room,
    agent: Option<Room>,
}

impl LocalBroker {
    /// Starts a broker.
    ///
    /// # Errors
    /// It cannot start.
    pub async fn start(config: BrokerConfig) -> Result<Self, String> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (started, address) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            actix_rt::System::new().block_on(async move {
                match Broker::start(&config, Telemetry::default()).await {
                    Ok(mut broker) => {
                        // This same process waits for the address; if it is gone, there is no reason to serve.
                        if started.send(Ok(broker.address)).is_ok() {
                            let ended = broker.run(async { drop(stopped.await) }).await;
                            if let Err(error) = ended {
                                log::error!("broker failed: {error}");
                            }
                        }
                        broker.stop().await;
                    }
                    Err(error) => drop(started.send(Err(error.to_string()))),
                }
            });
        });
        let address = address.await.unwrap_or_else(|_| Err("the broker panicked while starting".to_owned()))?;
        Ok(Self { address, broker: Room { stop, thread }, agent: None })
    }

    /// The broker's address for clients.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Starts an agent of this broker.
    pub fn start_agent(&mut self, config: AgentConfig) -> Result<(), String> {
        let broker = self.url().parse().map_err(|e: String| format!("invalid address of the broker: {e}"))?;
        let config = AgentConfig { broker, ..config };
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let ended = actix_rt::System::new().block_on(agent::run(config, None, async { drop(stopped.await) }));
            if let Err(error) = ended {
                log::error!("agent failed: {error}");
            }
        });
        self.agent = Some(Room { stop, thread });
        Ok(())
    }

    /// Stops the agent, which reports its current work, and then the broker.
    pub async fn end(self) {
        if let Some(agent) = self.agent {
            agent.end().await;
        }
        self.broker.end().await;
    }
}
