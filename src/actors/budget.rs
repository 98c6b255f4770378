//! Limits how many bytes the broker holds at once for its peers and clients: bodies and frames that it receives, responses and
//! frames that it has not sent yet.
//!
//! There is one limit for all, and each token may use at most three quarters of it, so that one token cannot block the others. A
//! request over the limit is rejected; nothing waits here.

use crate::config::tokens::TokenKey;
use crate::protocol::problem::Problem;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    used: AtomicUsize,
    shares: Mutex<HashMap<Option<TokenKey>, Arc<AtomicUsize>>>,
}

/// The part of the budget that the connections of one token may use.
#[derive(Debug, Clone)]
pub struct Share {
    all: Arc<Inner>,
    used: Arc<AtomicUsize>,
}

/// Bytes that are in use; dropping the charge frees them.
#[derive(Debug)]
pub struct Charge {
    share: Share,
    bytes: usize,
}

/// Why more bytes are rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The token has used its share.
    Share,
    /// The whole budget is in use.
    All,
}

impl Budget {
    /// A budget with this limit in bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner { most, used: AtomicUsize::new(0), shares: Mutex::default() }))
    }

    /// The share of a token; `None`: of all callers without one.
    #[must_use]
    pub fn share(&self, token: Option<TokenKey>) -> Share {
        let mut shares = self.0.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let used = match shares.get(&token) {
            Some(used) => Arc::clone(used),
            None => {
                // Tokens come and go with each reload of the token file: a share that is not in use is made again when it is needed.
                shares.retain(|_, used| Arc::strong_count(used) > 1);
                Arc::clone(shares.entry(token).or_default())
            }
        };
        Share { all: Arc::clone(&self.0), used }
    }

    /// Bytes in use.
    #[cfg(test)]
    pub fn used(&self) -> usize {
        self.0.used.load(Relaxed)
    }
}

impl Share {
    /// An empty charge.
    #[must_use]
    pub fn nothing(&self) -> Charge {
        Charge { share: self.clone(), bytes: 0 }
    }

    /// Charges this number of bytes.
    ///
    /// # Errors
    /// The budget or the share is full.
    #[cfg(test)]
    pub fn charge(&self, bytes: usize) -> Result<Charge, Full> {
        let mut charge = self.nothing();
        charge.set(bytes).map(|()| charge)
    }

    pub(super) fn grow(&self, more: usize) -> Result<(), Full> {
        let most_of_one = self.all.most - self.all.most / 4;
        let fits = |most: usize| move |used: usize| used.checked_add(more).filter(|sum| *sum <= most);
        self.used.fetch_update(Relaxed, Relaxed, fits(most_of_one)).map_err(|_| Full::Share)?;
        if self.all.used.fetch_update(Relaxed, Relaxed, fits(self.all.most)).is_err() {
            self.used.fetch_sub(more, Relaxed);
            return Err(Full::All);
        }
        Ok(())
    }

    pub(super) fn shrink(&self, less: usize) {
        self.used.fetch_sub(less, Relaxed);
        self.all.used.fetch_sub(less, Relaxed);
    }
}

impl Charge {
    /// Sets the charge to this number of bytes.
    ///
    /// # Errors
    /// The budget or the share is full; the charge does not change.
    pub fn set(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes > self.bytes {
            self.share.grow(bytes - self.bytes)?;
        } else {
            self.share.shrink(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Adds this number of bytes to the charge.
    ///
    /// # Errors
    /// As [`Charge::set`].
    pub fn add(&mut self, bytes: usize) -> Result<(), Full> {
        self.set(self.bytes.saturating_add(bytes))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.share.shrink(self.bytes);
    }
}

impl From<Full> for Problem {
    fn from(full: Full) -> Self {
        match full {
            Full::Share => Self::too_many("calls and sockets with this token use the maximum number of bytes; retry later"),
            Full::All => Self::busy("calls and sockets use the maximum number of bytes; retry later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_share_leaves_room_for_others() {
        let budget = Budget::new(100);
        let of = |text| budget.share(Some(TokenKey::of(text)));
        let (one, other) = (of("one"), of("other"));
        let mut first = one.charge(70).expect("room");
        assert_eq!(first.add(6), Err(Full::Share));
        first.add(5).expect("three quarters");
        assert_eq!(other.charge(26).map(drop), Err(Full::All));
        let second = other.charge(25).expect("the rest");
        assert_eq!(budget.used(), 100);
        assert_eq!(of("one").charge(1).map(drop), Err(Full::Share), "a share is found again by its token");
        first.set(10).expect("less always fits");
        other.charge(50).expect("room again");
        drop((first, second));
        assert_eq!(budget.used(), 0);
        assert_eq!(one.charge(usize::MAX).map(drop), Err(Full::Share));
        assert_eq!(budget.used(), 0, "what was refused is not counted");
    }
}
