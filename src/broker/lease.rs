//! Keeps the lease: the leader renews it periodically, and ends when it is no longer the leader.

use super::clock::Steady;
use crate::actors::brokers::Brokers;
use crate::domain::leader::{End, Tenure};
use crate::domain::time::Timestamp;
use crate::store::{GetLease, Leadership, Member, RenewLease, Store, StoreError};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Interval between two attempts to get the lock.
const LOOK: Duration = Duration::from_millis(50);
/// A broker that was seen may come back within an hour, on the leader's monotonic clock.
const OTHERS_MS: u64 = 3_600_000;

/// The state that a renewal needs.
pub(super) struct LeaseRenewer {
    pub(super) store: Store,
    pub(super) me: Member,
    pub(super) leadership: Leadership,
    pub(super) ttl_ms: u64,
    pub(super) brokers: Arc<Brokers>,
    /// Whether the lease was neither renewed nor read for two leases: then no blocks are dispatched. Agents and workers of a broker that knows of
    /// others get no answer from one lease on, see [`Brokers::is_doubtful`].
    pub(super) is_cut_off: watch::Sender<bool>,
    /// The log has that another broker may lead.
    pub(super) is_doubt_logged: Cell<bool>,
}

impl LeaseRenewer {
    /// Renews the lease until it is lost, and returns the reason. The first renewal is immediate: a lease taken over from a
    /// hanging broker has no lock yet, and a lease for a schema migration is long.
    pub(super) async fn keep(self) -> String {
        let clock = Steady::start();
        let mut tenure = Tenure::new(self.ttl_ms, clock.now_ms());
        let every = Duration::from_millis(tenure.every_ms());
        let mut others_until = 0;
        loop {
            let is_locked = timeout(every, self.holds_lock()).await.unwrap_or(false);
            let (began, steady) = (clock.now_ms(), Timestamp::steady());
            let mut renewal = std::pin::pin!(self.renewal(is_locked));
            let done = loop {
                tokio::select! {
                    done = &mut renewal => break done,
                    () = sleep(every) => {}
                }
                if let Some(why) = self.doubt(&mut tenure, &clock).await {
                    return why;
                }
            };
            match done {
                Ok(has_others) => {
                    tenure.renewed(began);
                    if has_others {
                        others_until = began + OTHERS_MS;
                    }
                    let until = steady.plus_ms(self.ttl_ms as i64);
                    self.brokers.renewed(Some(until).filter(|_| began < others_until && self.store.is_remote()));
                    self.is_cut_off.send_replace(false);
                    if !self.brokers.is_doubtful() && self.is_doubt_logged.take() {
                        log::info!("lease renewed, agents and workers are answered again term={}", self.leadership.term);
                    }
                }
                Err(StoreError::NotLeading) => return self.store.deposed().await.text(self.leadership.term),
                Err(error) => {
                    log::warn!("failed to renew the lease error={error}");
                    if let Some(why) = self.doubt(&mut tenure, &clock).await {
                        return why;
                    }
                }
            }
            // At once, if this renewal took long: it may have waited for the database.
            let pause = every.saturating_sub(Duration::from_millis(clock.now_ms() - began));
            tokio::select! {
                () = sleep(pause) => {}
                () = self.lock(), if !is_locked => {}
                end = self.store.deposed() => return end.text(self.leadership.term),
            }
        }
    }

    /// Completes when the lock is held. The previous leader may keep it for a moment after it released the lease. Without the
    /// lock, other brokers notice the crash of this one only by its silence.
    async fn lock(&self) {
        while !self.holds_lock().await {
            sleep(LOOK).await;
        }
    }

    /// Asks the operating system or the server of the database, which may take its time.
    async fn holds_lock(&self) -> bool {
        let leadership = self.leadership.clone();
        tokio::task::spawn_blocking(move || leadership.holds_lock()).await.unwrap_or(false)
    }

    fn renewal(&self, is_locked: bool) -> impl Future<Output = Result<bool, StoreError>> + use<> {
        self.store.write_unbounded(RenewLease { me: self.me.clone(), ttl_ms: self.ttl_ms, is_locked, now: Timestamp::now() })
    }

    /// Why the lease is lost, if it is. Another broker may have a lease that was not renewed in time. But a slow disk is no
    /// reason to end, and the store shows who has the lease.
    async fn doubt(&self, tenure: &mut Tenure, clock: &Steady) -> Option<String> {
        if !tenure.is_doubtful(clock.now_ms()) {
            return None;
        }
        if self.brokers.is_doubtful() && !self.is_doubt_logged.replace(true) {
            log::warn!(
                "lease not renewed in time, another broker may lead: agents and workers get no answer term={}",
                self.leadership.term
            );
        }
        match timeout(Duration::from_millis(self.ttl_ms), self.store.read(GetLease)).await {
            Ok(Ok(Some(stored))) if stored.lease.term == self.leadership.term && stored.broker == self.me.id => {
                log::warn!("the lease could not be renewed in time, but this broker still holds it term={}", self.leadership.term);
                tenure.seen(clock.now_ms());
                None
            }
            Ok(Ok(stored)) => {
                let is_later = stored.is_some_and(|stored| stored.lease.term >= self.leadership.term);
                Some(if is_later { End::TakenOver } else { End::Rewound }.text(self.leadership.term))
            }
            // The server of the database is away, for this broker or for all. If another leads, the database will say so.
            Ok(Err(_)) | Err(_) if self.store.is_remote() => {
                if tenure.is_over(clock.now_ms()) && !self.is_cut_off.send_replace(true) {
                    log::error!("the lease can be neither renewed nor read: no work is handed out until the database is back");
                }
                None
            }
            Ok(Err(_)) | Err(_) => {
                tenure.is_over(clock.now_ms()).then(|| "the lease can be neither renewed nor read: another may have taken over".to_owned())
            }
        }
    }
}
