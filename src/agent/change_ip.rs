//! Giving this machine another IP address, by a program that is named in the agent's settings and nowhere else.
//!
//! Downloads pass a gate. A change waits until all that are inside are through, and holds the others back while it runs.
//! Many pages that ask for a change at once get one: each says under which address it was asked for.

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

/// Leave to download; kept until the body is read. Holds the number of the address.
pub struct Pass<'a>(Option<RwLockReadGuard<'a, u64>>);

impl Pass<'_> {
    /// Changes of the address so far.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.0.as_deref().copied().unwrap_or(0)
    }
}

impl Changer {
    /// An empty `command`: the address is never changed, and the gate stands open.
    #[must_use]
    pub fn new(command: Vec<String>, limit: Duration) -> Self {
        Self { command, limit, address: RwLock::new(0) }
    }

    /// Whether there is a program.
    #[must_use]
    pub fn is_able(&self) -> bool {
        !self.command.is_empty()
    }

    /// Waits for the gate.
    pub async fn pass(&self) -> Pass<'_> {
        Pass(if self.is_able() { Some(self.address.read().await) } else { None })
    }

    /// Changes the address, unless it is no longer `seen`. It is carried through even if the caller goes away: half a
    /// change might leave the machine without any address.
    pub async fn change(self: &Rc<Self>, seen: u64) {
        let this = Rc::clone(self);
        let change = actix_rt::spawn(async move {
            let mut address = this.address.write().await;
            if *address == seen {
                this.run().await;
                // Counted even if the program failed: the next page asks for its own try.
                *address += 1;
            }
        });
        if change.await.is_err() {
            log::error!("the change of the ip address panicked");
        }
    }

    async fn run(&self) {
        let Some((program, arguments)) = self.command.split_first() else { return };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        log::info!("changing the ip address program={program}");
        match tokio::time::timeout(self.limit, command.status()).await {
            Ok(Ok(status)) if status.success() => log::info!("ip address changed"),
            Ok(Ok(status)) => log::warn!("the program that changes the ip address failed program={program} status={status}"),
            Ok(Err(error)) => log::warn!("the program that changes the ip address does not start program={program} error={error}"),
            Err(_) => log::warn!("the program that changes the ip address took too long and was killed program={program}"),
        }
    }
}
