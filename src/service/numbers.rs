//! Objects that are addressed by their numbers.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::ids::{ChannelId, GroupId, Identity, JobId, NodeId, Number, NumberOr, WorkerId};
use crate::protocol::problem::Problem;
use crate::store::{Numbered, OfNumber};
use uuid::Uuid;

/// An id whose object can be found by number.
pub trait NumberedId: Sized {
    /// The kind of object.
    const KIND: Numbered;
    /// The name of the kind, for messages.
    const NAME: &'static str;

    /// The id with this UUID.
    fn of(id: Uuid) -> Self;
}

macro_rules! numbered {
    ($($id:ident $kind:ident $name:literal),*) => {$(
        impl NumberedId for $id {
            const KIND: Numbered = Numbered::$kind;
            const NAME: &'static str = $name;

            fn of(id: Uuid) -> Self {
                Self(id)
            }
        }
    )*};
}

numbered!(JobId Job "job", Identity Run "run", GroupId Group "group", NodeId Node "node", WorkerId Worker "worker", ChannelId Channel "channel");

impl Service {
    /// The id of an addressed object. An id is returned without a lookup.
    ///
    /// # Errors
    /// No object has this number, or several have it.
    pub async fn meant<T: NumberedId>(&self, named: NumberOr<T>) -> Result<T, Problem> {
        match named {
            NumberOr::Id(id) => Ok(id),
            NumberOr::Number(number) => self.numbered(number).await,
        }
    }

    /// The id of the object with this number.
    ///
    /// # Errors
    /// No object has this number, or several have it.
    pub async fn numbered<T: NumberedId>(&self, number: Number) -> Result<T, Problem> {
        let found = self.context.store.read(OfNumber { kind: T::KIND, number }).await.map_err(|e| problem_of(&e))?;
        match found[..] {
            [] => Err(Problem::not_found(format!("there is no {} {number}", T::NAME))),
            [id] => Ok(T::of(id)),
            _ => Err(Problem::conflict(
                "number-shared",
                format!("{} {}s have the number {number}: use the id instead", found.len(), T::NAME),
            )),
        }
    }
}
