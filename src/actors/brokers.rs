//! What a broker knows of who leads: itself or another. Written by the program, read by the service.

use crate::store::Member;
use std::sync::{PoisonError, RwLock};

/// What a broker is at present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It leads.
    Leader {
        /// Counted up by each that takes over.
        term: i64,
    },
    /// Another leads.
    Standby {
        /// Where clients find that one, if there is one.
        leader: Option<String>,
        /// Its term.
        term: i64,
        /// The tables are as this program has them, so that it can read them.
        can_read: bool,
    },
}

/// See the module's text.
#[derive(Debug)]
pub struct Brokers {
    /// This broker.
    pub me: Member,
    role: RwLock<Role>,
}

impl Brokers {
    /// This broker, in this role.
    #[must_use]
    pub fn new(me: Member, role: Role) -> Self {
        Self { me, role: RwLock::new(role) }
    }

    /// What it is at present.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What it is from now on; says whether that is new.
    pub fn set(&self, role: Role) -> bool {
        let mut present = self.role.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *present != role;
        *present = role;
        is_new
    }
}
