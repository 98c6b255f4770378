//! Changes the IP address of this machine, by a program that only the agent's settings can name.
//!
//! Downloads pass a gate. A change waits until all downloads inside have finished, and blocks new ones while it runs. If many pages ask
//! for a change at once, it runs once: each request names the address that it was made from.

use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::{RwLock, RwLockReadGuard};

/// The gate, and the program.
pub struct Changer {
    command: Vec<String>,
    limit: Duration,
    /// Counts the changes.
    address: RwLock<u64>,
}

/// Permission to download, kept until the body is read. Holds the number of the address.
pub struct Pass<'a>(Option<RwLockReadGuard<'a, u64>>);

impl Pass<'_> {
    /// Number of address changes so far.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.as_deref().copied().unwrap_or(0)
    }
}

impl Changer {
    /// With an empty `command` the address never changes, and the gate is always open.
    #[must_use]
    pub fn new(command: Vec<String>, limit: Duration) -> Self {
        Self { command, limit, address: RwLock::new(0) }
    }

    /// Whether a program is configured.
    #[must_use]
    pub fn is_able(&self) -> bool {
        !self.command.is_empty()
    }

    /// Waits until no change is in progress.
    pub async fn pass(&self) -> Pass<'_> {
        Pass(if self.is_able() { Some(self.address.read().await) } else { None })
    }

    /// Changes the address, unless it already differs from `seen`. The change completes even if the caller is dropped: a partial change
    /// might leave the machine without any address.
    pub async fn change(self: &Rc<Self>, seen: u64) {
        let this = Rc::clone(self);
        let change = actix_rt::spawn(async move {
            let mut address = this.address.write().await;
            if *address == seen {
                this.run().await;
                // Count a failed change too, so that the next page triggers a new try.
                *address += 1;
            }
        });
        if change.await.is_err() {
            log::error!("changing the ip address panicked");
        }
    }

    async fn run(&self) {
        let Some((program, arguments)) = self.command.split_first() else { return };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        log::info!("changing the ip address program={program}");
        match tokio::time::timeout(self.limit, command.status()).await {
            Ok(Ok(status)) if status.success() => log::info!("ip address changed"),
            Ok(Ok(status)) => log::warn!("ip change program failed program={program} status={status}"),
            Ok(Err(error)) => log::warn!("cannot start ip change program program={program} error={error}"),
            Err(_) => log::warn!("ip change program timed out and was killed program={program}"),
        }
    }
}
