//! Who lives where, as maps that all read.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{PoisonError, RwLock};

/// A map that many read and the registry writes.
#[derive(Debug)]
pub struct AddressMap<K, V>(RwLock<HashMap<K, V>>);

impl<K, V> Default for AddressMap<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash + Copy, V: Clone> AddressMap<K, V> {
    /// The one of this key.
    #[must_use]
    pub fn get(&self, key: K) -> Option<V> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Puts one in.
    pub fn put(&self, key: K, value: V) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    /// Takes one out.
    pub fn remove(&self, key: K) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Takes one out and gives it.
    pub fn take(&self, key: K) -> Option<V> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> Vec<(K, V)> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().map(|(k, v)| (*k, v.clone())).collect()
    }
}
