//! The current role of this broker: leader or standby. The program writes it and the service reads it.

use crate::store::Member;
use tokio::sync::watch;

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
    role: watch::Sender<Role>,
}

impl Brokers {
    /// A broker with this role.
    #[must_use]
    pub fn new(me: Member, role: Role) -> Self {
        Self { me, role: watch::Sender::new(role) }
    }

    /// The current role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role.borrow().clone()
    }

    /// Resolves when the role is one for which this is true.
    pub fn becomes<F: FnMut(&Role) -> bool>(&self, is_it: F) -> impl Future<Output = ()> + use<F> {
        let mut role = self.role.subscribe();
        async move {
            // Without a sender this broker has no role any more.
            let _ = role.wait_for(is_it).await;
        }
    }

    /// Sets the role and returns whether it changed.
    pub fn set(&self, role: Role) -> bool {
        self.role.send_if_modified(|present| {
            let is_new = *present != role;
            *present = role;
            is_new
        })
    }
}
