//! The attempts of runs that had more than one.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::ids::{Identity, NodeId};
use crate::domain::node::shown_name;
use crate::protocol::api::Page;
use crate::protocol::packages::AttemptOutput;
use crate::protocol::problem::Problem;
use crate::store::ListAttempts;

fn place_of(cursor: &str) -> Result<(u32, u32), Problem> {
    let parts = cursor.split_once('-').and_then(|(instance, attempt)| Some((instance.parse().ok()?, attempt.parse().ok()?)));
    parts.ok_or_else(|| Problem::invalid("cursor", "not a cursor of this list: send the `nextCursor` of the page before"))
}

impl Service {
    /// The attempts of a run that had more than one, by instance and attempt.
    ///
    /// # Errors
    /// The run does not exist, or the cursor is invalid.
    pub async fn attempts(&self, identity: Identity, cursor: Option<&str>, limit: usize) -> Result<Page<AttemptOutput>, Problem> {
        let from = cursor.map_or(Ok((0, 0)), place_of)?;
        let no = self.stored_run(identity).await?.no;
        let mut rows = self.context.store.read(ListAttempts { no, from, limit: limit + 1 }).await.map_err(|e| problem_of(&e))?;
        let more = (rows.len() > limit).then(|| rows.pop()).flatten();
        let names = self.peer_names(rows.iter().filter_map(|row| row.peer).collect()).await?;
        let items = rows.into_iter().map(|row| AttemptOutput {
            instance: row.instance,
            attempt: row.attempt,
            peer: row.peer.map(NodeId),
            peer_name: row.peer.map(|peer| shown_name(NodeId(peer), names.get(&peer).map(String::as_str))),
            state: row.state,
            reason: row.reason,
            start_time: row.start_time,
            finish_time: row.finish_time,
        });
        Ok(Page { items: items.collect(), next_cursor: more.map(|row| format!("{}-{}", row.instance, row.attempt)) })
    }
}
