//! Redirects that the nodes report: the targets become requests of the run, stored together with the results that name them.

use super::RunActor;
use super::cache::Payload;
use super::opened::lacks_target;
use super::parts::renamed;
use crate::domain::redirect::{Redirects, is_redirect};
use crate::domain::request::unpack;
use crate::protocol::compare::compare_by;
use crate::protocol::node::{FetchError, FetchErrorKind};
use crate::protocol::pack::{Entry, Index, Opened};
use crate::protocol::problem::Problem;
use crate::protocol::push::read_push;
use crate::protocol::redirected::redirected;
use crate::store::NewBlock;
use actix::Context;
use bytes::Bytes;
use serde_json::Value;
use std::collections::HashMap;

impl RunActor {
    /// Admits the targets of the redirects in a report. Returns the pack as it is to be stored, and the new blocks. `payload` has the
    /// requests of the report.
    ///
    /// # Errors
    /// The requests cannot be read or packed. Then the seen set may be wrong, and the actor must end.
    pub(super) fn with_targets(&mut self, index: &mut Index, pack: Bytes, payload: &Payload) -> Result<(Bytes, Vec<NewBlock>), Problem> {
        let (targets, is_changed) = self.admit_targets(index, payload)?;
        let block_id = index.block_id;
        let pack = if is_changed { renamed(index, &pack, block_id)? } else { pack };
        Ok((pack, targets))
    }

    /// The new blocks are on disk.
    pub(super) fn targets_stored(&mut self, targets: Vec<NewBlock>, ctx: &mut Context<Self>) {
        if !targets.is_empty() {
            self.blocks_stored(targets, ctx);
        }
    }

    /// A redirect whose target cannot be requested is marked as failed in the index; then the second value is true.
    fn admit_targets(&mut self, index: &mut Index, payload: &Payload) -> Result<(Vec<NewBlock>, bool), Problem> {
        let most = self.run.download.max_redirects;
        let is_left = |entry: &Entry| is_redirect(entry.status) && entry.error.is_none();
        if self.run.queue.redirects == Redirects::Follow || most == 0 || !index.results.iter().any(is_left) {
            return Ok((Vec::new(), false));
        }
        let text = payload.text()?;
        let requests = unpack(&text).map_err(|why| {
            log::error!("failed to read the requests of a block: {why}");
            Problem::internal()
        })?;
        let requests: HashMap<_, _> = payload.prints.iter().zip(requests).collect();
        let (mut targets, mut is_changed) = (Vec::new(), false);
        for entry in index.results.iter_mut().filter(|entry| is_left(entry)) {
            let Some(location) = entry.location.as_deref().filter(|location| !location.is_empty()) else { continue };
            let Some(request) = requests.get(&entry.request_id) else { continue };
            // Checked one by one, so that a bad one does not affect the others.
            let made = redirected(request.get(), entry.status, location, most).map(Value::Object);
            let checked = made.and_then(|made| match read_push(Bytes::from(Value::from(vec![made.clone()]).to_string())) {
                Ok(_) => Ok(made),
                Err(problem) => Err(format!("the target of the redirect cannot be requested: {}", problem.detail)),
            });
            match checked {
                Ok(made) => targets.push(made),
                Err(message) => {
                    entry.error = Some(FetchError { kind: FetchErrorKind::Redirect, message, retryable: false });
                    is_changed = true;
                }
            }
        }
        if targets.is_empty() {
            return Ok((Vec::new(), is_changed));
        }
        let mut batch = read_push(Bytes::from(Value::from(targets).to_string()))?;
        compare_by(&self.run.queue.canonicalisation, &mut batch);
        let (blocks, _) = self.admit(&batch)?;
        Ok((blocks, is_changed))
    }
}

/// Takes the targets that the index does not have from the headers of the responses.
pub(super) fn find_targets(index: &mut Index, opened: Vec<Opened>) {
    let mut heads: HashMap<_, _> = opened.into_iter().map(|result| (result.entry.request_id, result.head)).collect();
    for entry in index.results.iter_mut().filter(|entry| lacks_target(entry)) {
        let headers = heads.remove(&entry.request_id).map(|head| head.headers).unwrap_or_default();
        entry.location = headers.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("location")).map(|(_, value)| value);
    }
}
