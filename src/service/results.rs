//! The results of a block run that no worker has acknowledged: read, and left as they are.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::ids::{BlockId, Identity};
use crate::protocol::problem::Problem;
use crate::store::{ListResults, StoredResult};

/// Bytes of results, as stored, after which a page ends.
const MOST_BYTES: usize = 512 << 10;

impl Service {
    /// Finished blocks with their results, in the order of their numbers, and the cursor of the next page. Nothing is delivered or
    /// acknowledged by this. The results of a run that is over are deleted.
    ///
    /// # Errors
    /// The run does not exist, or the cursor is invalid.
    pub async fn results(
        &self,
        identity: Identity,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<(BlockId, StoredResult)>, Option<String>), Problem> {
        let from = cursor.map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list"))).transpose()?;
        let run = self.stored_run(identity).await?;
        if run.state.is_final() {
            return Ok((Vec::new(), None));
        }
        let list = ListResults { no: run.no, from: from.unwrap_or(0), limit, most_bytes: MOST_BYTES };
        let (found, next) = self.context.store.read(list).await.map_err(|e| problem_of(&e))?;
        let blocks = found.results.into_iter().map(|result| (BlockId::new(identity, result.seq), result)).collect();
        Ok((blocks, next.map(|seq| seq.to_string())))
    }
}
