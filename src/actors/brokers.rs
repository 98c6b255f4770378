//! The current role of this broker: leader or standby. The program writes it and the service reads it.

use crate::store::Member;
use std::sync::{PoisonError, RwLock};

/// The role of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// This broker is the leader.
    Leader {
        /// Increased by one with each new leader.
        term: i64,
    },
    /// Another broker is the leader.
    Standby {
        /// Address of the leader for clients, if there is a leader.
        leader: Option<String>,
        /// The term of the leader.
        term: i64,
        /// The database schema matches this program, so this broker can read the tables.
        can_read: bool,
    },
}

/// See the module documentation.
#[derive(Debug)]
pub struct Brokers {
    /// This broker.
    pub me: Member,
    role: RwLock<Role>,
}

impl Brokers {
    /// A broker with this role.
    #[must_use]
    pub fn new(me: Member, role: Role) -> Self {
        Self { me, role: RwLock::new(role) }
    }

    /// The current role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the role and returns whether it changed.
    pub fn set(&self, role: Role) -> bool {
        let mut present = self.role.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *present != role;
        *present = role;
        is_new
    }
}
