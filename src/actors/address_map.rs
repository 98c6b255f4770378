//! Maps of live actors that all modules can read.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{PoisonError, RwLock};

/// A map with many readers; only the registry writes it.
#[derive(Debug)]
pub struct AddressMap<K, V>(RwLock<HashMap<K, V>>);

impl<K, V> Default for AddressMap<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash + Copy, V: Clone> AddressMap<K, V> {
    /// The value of this key.
    #[must_use]
    pub fn get(&self, key: K) -> Option<V> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    /// Inserts or replaces a value.
    pub fn put(&self, key: K, value: V) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, value);
    }

    /// Removes the value of this key.
    pub fn remove(&self, key: K) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key);
    }

    /// Removes and returns the value of this key.
    pub fn take(&self, key: K) -> Option<V> {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&key)
    }

    /// Number of entries.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// All entries.
    #[must_use]
    pub fn all(&self) -> Vec<(K, V)> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).iter().map(|(k, v)| (*k, v.clone())).collect()
    }
}
