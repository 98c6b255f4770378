//! The turns of a leader at a server: each batch of writes has a number, counted in the row of the leader. So a leader finds out whether a
//! commit took place whose answer was lost, and whether the database still has all that it confirmed. A broker that does not lead and owns runs
//! has turns too, counted in a row of its own.
//!
//! A server may lose confirmed batches: an asynchronous replica takes over, or an older backup takes its place. The memory of a leader
//! is then ahead of the database, so the leader must end; the next one loads what is stored.

use crate::domain::ids::BrokerId;

/// What the row of the leader, or of an owner of runs, means within a transaction of its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Incremented by each takeover; for an owner, by each grant to any of them.
    pub term: i64,
    /// Who leads, or owns, and the number of the last batch. SQLite does not count batches: a file loses none.
    pub batch: Option<(BrokerId, i64)>,
}

/// Why a leader must end, or a broker must give up the runs that it owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Another broker has taken over; or the leader has taken away the runs of an owner.
    TakenOver,
    /// The database lacks writes that it had confirmed.
    Rewound,
    /// The outcome of a commit could not be found out.
    Unknown,
}

impl End {
    /// A text for logs and for whoever reads why the leader ended.
    #[must_use]
    pub fn text(self, term: i64) -> String {
        match self {
            Self::TakenOver => format!("another broker has taken over: term {term} has ended"),
            Self::Rewound => format!(
                "the database lacks writes that it had confirmed in term {term}: a replica that was behind, or an older copy, has taken the place \
                of its server. The next leader works with what is stored"
            ),
            Self::Unknown => {
                format!("it is unknown whether the last commit of term {term} took place. The next leader works with what is stored")
            }
        }
    }

    /// As [`Self::text`], for a broker that does not lead.
    #[must_use]
    pub fn text_for_owner(self) -> &'static str {
        match self {
            Self::TakenOver => "the leader has taken its runs away",
            Self::Rewound => {
                "the database lacks writes of this broker that it had confirmed: a replica that was behind, or an older copy, has taken the place of \
                 its server"
            }
            Self::Unknown => "it is unknown whether its last commit took place",
        }
    }
}

impl Turn {
    /// Whether this is the turn after `last`, the last one that is stored.
    ///
    /// # Errors
    /// It is not: the leader must not write, and must end.
    pub fn follows(&self, last: &Self) -> Result<(), End> {
        self.is_of(last)?;
        match (self.batch, last.batch) {
            (Some((_, number)), Some((_, stored))) if number != stored + 1 => Err(End::Rewound),
            _ => Ok(()),
        }
    }

    /// Whether this turn is stored. `found` is the last turn in the database, when the transaction of this turn is over.
    ///
    /// # Errors
    /// It cannot be known any more, and the leader must end.
    pub fn is_stored(&self, found: Option<&Self>) -> Result<bool, End> {
        let found = found.ok_or(End::Rewound)?;
        found.is_of(self)?;
        match (found.batch, self.batch) {
            (Some((_, found)), Some((_, own))) if found == own => Ok(true),
            (Some((_, found)), Some((_, own))) if found == own - 1 => Ok(false),
            _ => Err(End::Rewound),
        }
    }

    /// Whether both are of one leader. After a database was set back, another broker may lead under a term that was used before.
    fn is_of(&self, own: &Self) -> Result<(), End> {
        let leader = |turn: &Self| turn.batch.map(|(leader, _)| leader);
        if self.term < own.term {
            return Err(End::Rewound);
        }
        if self.term > own.term || leader(self) != leader(own) { Err(End::TakenOver) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(leader: u128, term: i64, number: i64) -> Turn {
        Turn { term, batch: Some((BrokerId(uuid::Uuid::from_u128(leader)), number)) }
    }

    #[test]
    fn a_leader_writes_only_after_its_own_last_batch() {
        let last = turn(1, 4, 10);
        for (next, expected) in [
            (turn(1, 4, 11), Ok(())),
            (turn(1, 4, 10), Err(End::Rewound)),
            (turn(1, 4, 7), Err(End::Rewound)),
            (turn(1, 4, 12), Err(End::Rewound)),
            (turn(1, 3, 11), Err(End::Rewound)),
            (turn(2, 5, 11), Err(End::TakenOver)),
            (turn(2, 4, 11), Err(End::TakenOver)),
        ] {
            assert_eq!(next.follows(&last), expected, "{next:?}");
        }
        let file = |term| Turn { term, batch: None };
        assert_eq!((file(4).follows(&file(4)), file(5).follows(&file(4))), (Ok(()), Err(End::TakenOver)));
    }

    #[test]
    fn a_batch_is_stored_or_not_and_a_leader_that_cannot_know_ends() {
        let own = turn(1, 4, 10);
        for (found, expected) in [
            (Some(turn(1, 4, 10)), Ok(true)),
            (Some(turn(1, 4, 9)), Ok(false)),
            (Some(turn(1, 4, 8)), Err(End::Rewound)),
            (Some(turn(1, 3, 9)), Err(End::Rewound)),
            (Some(turn(2, 5, 11)), Err(End::TakenOver)),
            (Some(turn(2, 4, 10)), Err(End::TakenOver)),
            (None, Err(End::Rewound)),
        ] {
            assert_eq!(own.is_stored(found.as_ref()), expected, "{found:?}");
        }
    }
}
