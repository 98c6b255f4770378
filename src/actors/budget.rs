//! How many bytes the broker holds at once for those who are connected: bodies and frames that come in, answers and frames that
//! are not sent yet.
//!
//! All together they hold no more than a limit, and those who come with one token no more than three quarters of it, so that
//! whoever fills his share leaves room for others. What is refused is not taken in; nothing waits here.

use crate::protocol::problem::Problem;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    used: AtomicUsize,
    shares: Mutex<HashMap<String, Arc<AtomicUsize>>>,
}

/// What those may hold who come with one token.
#[derive(Debug, Clone)]
pub struct Share {
    all: Arc<Inner>,
    used: Arc<AtomicUsize>,
}

/// Bytes that are held; dropped, they are free again.
#[derive(Debug)]
pub struct Charge {
    share: Share,
    bytes: usize,
}

/// Why no more is taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The share of the token is used up.
    Share,
    /// All is used up.
    All,
}

impl Budget {
    /// One of so many bytes.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Inner { most, used: AtomicUsize::new(0), shares: Mutex::default() }))
    }

    /// The share of those who are named so: by their token.
    #[must_use]
    pub fn share(&self, name: &str) -> Share {
        let mut shares = self.0.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let used = match shares.get(name) {
            Some(used) => Arc::clone(used),
            None => Arc::clone(shares.entry(name.to_owned()).or_default()),
        };
        Share { all: Arc::clone(&self.0), used }
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Relaxed)
    }
}

impl Share {
    /// Nothing yet.
    #[must_use]
    pub fn nothing(&self) -> Charge {
        Charge { share: self.clone(), bytes: 0 }
    }

    /// So many bytes.
    ///
    /// # Errors
    /// There is no room for them.
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
    /// Makes it so many bytes.
    ///
    /// # Errors
    /// There is no room for more; it stays as it was.
    pub fn set(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes > self.bytes {
            self.share.grow(bytes - self.bytes)?;
        } else {
            self.share.shrink(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Makes it so many bytes more.
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
            Full::Share => Self::too_many("calls and sockets with this token hold as many bytes as they may; retry later"),
            Full::All => Self::busy("calls and sockets hold as many bytes as they may; retry later"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_share_leaves_room_for_others() {
        let budget = Budget::new(100);
        let (one, other) = (budget.share("one"), budget.share("other"));
        let mut first = one.charge(70).expect("room");
        assert_eq!(first.add(6), Err(Full::Share));
        first.add(5).expect("three quarters");
        assert_eq!(other.charge(26).map(drop), Err(Full::All));
        let second = other.charge(25).expect("the rest");
        assert_eq!(budget.used(), 100);
        assert_eq!(budget.share("one").charge(1).map(drop), Err(Full::Share), "a share is found again by its name");
        first.set(10).expect("less always fits");
        other.charge(50).expect("room again");
        drop((first, second));
        assert_eq!(budget.used(), 0);
        assert_eq!(one.charge(usize::MAX).map(drop), Err(Full::Share));
        assert_eq!(budget.used(), 0, "what was refused is not counted");
    }
}
