//! Named tokens: made and revoked while the broker runs, kept in its store, looked up here in memory.

use super::tokens::{Granted, Role, TokenKey};
use crate::domain::time::Timestamp;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// A token with a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedToken {
    /// Its name, unique.
    pub name: Arc<str>,
    /// Its role.
    pub role: Role,
    /// Its key: the SHA-256 of its text.
    pub key: TokenKey,
    /// The groups of jobs that it is limited to; `None`: all.
    pub groups: Option<Arc<[String]>>,
    /// When it expires.
    pub expires: Option<Timestamp>,
}

impl NamedToken {
    pub(super) fn granted(self) -> Granted {
        Granted { role: self.role, key: self.key, name: Some(self.name), groups: self.groups }
    }

    /// Milliseconds until it expires; `None`: it does not.
    pub(super) fn left_ms(&self, now: Timestamp) -> Option<u64> {
        self.expires.map(|at| u64::try_from(at.0.saturating_sub(now.0)).unwrap_or(0))
    }

    fn is_valid(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|at| now < at)
    }
}

type ByKey = HashMap<TokenKey, NamedToken>;

/// The named tokens of a broker; clones share them.
#[derive(Clone, Default)]
pub(super) struct Named {
    by_key: Arc<RwLock<Arc<ByKey>>>,
    /// There has been one since the process started. A broker does not become open because its last token was revoked.
    is_used: Arc<AtomicBool>,
    turn: Arc<Mutex<()>>,
}

impl Named {
    fn all(&self) -> Arc<ByKey> {
        Arc::clone(&self.by_key.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn get(&self, key: TokenKey, now: Timestamp) -> Option<NamedToken> {
        self.all().get(&key).filter(|token| token.is_valid(now)).cloned()
    }

    pub(super) fn keys(&self) -> Vec<TokenKey> {
        self.all().keys().copied().collect()
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// Replaces all. Returns whether anything changed.
    pub(super) fn set(&self, tokens: Vec<NamedToken>) -> bool {
        if !tokens.is_empty() {
            self.is_used.store(true, Relaxed);
        }
        let new: ByKey = tokens.into_iter().map(|token| (token.key, token)).collect();
        let mut by_key = self.by_key.write().unwrap_or_else(PoisonError::into_inner);
        let is_changed = **by_key != new;
        if is_changed {
            *by_key = Arc::new(new);
        }
        is_changed
    }

    pub(super) async fn turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.turn).lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tokens::Tokens;

    fn token(name: &str, text: &str, expires: Option<i64>) -> NamedToken {
        let key = TokenKey::of(text);
        NamedToken { name: name.into(), role: Role::Operator, key, groups: None, expires: expires.map(Timestamp) }
    }

    #[test]
    fn a_named_token_is_found_until_it_is_revoked_or_expires() {
        let tokens = Tokens::default();
        assert!(tokens.is_open());
        let later = Timestamp::now().0 + 3_600_000;
        tokens.set_named(vec![token("ann", "text-a", Some(later)), token("ben", "text-b", Some(1))]);
        let found = tokens.find("text-a").expect("a token");
        assert_eq!((found.role, found.name.as_deref()), (Role::Operator, Some("ann")));
        assert_eq!(tokens.find("operator:text-a"), Some(found));
        assert_eq!((tokens.find("admin:text-a"), tokens.find("text-b"), tokens.find("ann")), (None, None, None));
        tokens.set_named(Vec::new());
        assert_eq!(tokens.find("text-a"), None);
        assert!(!tokens.is_open(), "it stays closed");
    }

    #[test]
    fn a_key_is_its_digits() {
        let key = TokenKey::of("x");
        assert_eq!(TokenKey::from_hex(&key.hex()), Some(key));
        assert_eq!((TokenKey::from_hex("00"), TokenKey::from_hex(&"zz".repeat(32))), (None, None));
    }
}
