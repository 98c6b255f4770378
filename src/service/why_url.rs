//! Finds a URL in a run: the store knows the block of its request, and the run's actor knows where the block is.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::run::SitePlace;
use crate::domain::block::Phase;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{Identity, NodeId, Seq};
use crate::domain::job::JobKind;
use crate::domain::node::shown_name;
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use crate::domain::whereabouts::{Held, Sought, Whereabouts, explain_url};
use crate::protocol::failed::of_text;
use crate::protocol::management::WhyOutput;
use crate::protocol::pack;
use crate::protocol::problem::Problem;
use crate::protocol::push::canonical_url;
use crate::store::{BlockState, FindRequest, GetBlock, ReadFailures, ReadResults, StoredBlockRow};

/// Maximum number of repetitions of one request that are followed.
const MOST_REPETITIONS: usize = 20;

impl Service {
    /// Explains where a URL is in a run. It searches for a GET request without a body.
    ///
    /// # Errors
    /// The run does not exist, does not belong to a block job, or the URL is invalid.
    pub async fn why_url(&self, identity: Identity, asked: &str) -> Result<WhyOutput, Problem> {
        let url = canonical_url(asked)?;
        let run = self.stored_run(identity).await?;
        if run.kind != JobKind::Block {
            return Err(Problem::conflict("no-queue", format!("run {identity} is not of a block job: it has no requests")));
        }
        let request_id = Fingerprint::of("GET", &run.queue.canonicalisation.apply(&url), b"");
        let (mut found, mut next) = (Vec::new(), Some(request_id));
        while let Some(id) = next.take().filter(|_| found.len() < MOST_REPETITIONS) {
            let Some((place, repetition)) = self.whereabouts(&run, id).await? else { break };
            found.push(place);
            next = repetition;
        }
        let answer = explain_url(&Sought {
            asked,
            url: &url,
            request_id,
            settings: &run.queue,
            state: run.state,
            paused_at: run.paused_at(),
            found: &found,
            now: Timestamp::now(),
        });
        Ok(WhyOutput {
            subject: url.into_owned(),
            verdict: answer.verdict,
            rule: answer.rule,
            because: answer.because,
            identity: Some(identity),
        })
    }

    /// The state of a request, and the id of its repetition if it has one.
    async fn whereabouts(&self, run: &Run, id: Fingerprint) -> Result<Option<(Whereabouts, Option<Fingerprint>)>, Problem> {
        let store = &self.context.store;
        let Some(seq) = store.read(FindRequest { no: run.no, print: id }).await.map_err(|e| problem_of(&e))? else { return Ok(None) };
        let Some(row) = store.read(GetBlock { no: run.no, seq }).await.map_err(|e| problem_of(&e))? else { return Ok(None) };
        match row.state {
            BlockState::Ready | BlockState::Retry if run.state.is_final() => Ok(Some((Whereabouts::GivenUp, None))),
            BlockState::Ready | BlockState::Retry => Ok(Some((self.open_block(run.identity, seq).await?, None))),
            BlockState::Success | BlockState::Failed => self.result_of(run, &row, id).await.map(Some),
        }
    }

    /// The state of a block without results.
    async fn open_block(&self, identity: Identity, seq: Seq) -> Result<Whereabouts, Problem> {
        let place = match self.context.addresses.runs.get(identity) {
            Some(run) => match self.context.answer_of(identity, run.locate(seq)).await {
                Err(problem) if problem.kind == "/problems/run-over" => return Ok(Whereabouts::GivenUp),
                other => other?,
            },
            None => None,
        };
        let Some(place) = place else { return Ok(Whereabouts::Ready) };
        Ok(match (place.phase, place.lease, place.site) {
            (Phase::Using, Some(lease), _) => {
                Whereabouts::AtNode { node: self.named(lease.node).await?, since: lease.since.on_the_wall(), attempt: lease.attempt }
            }
            (Phase::Queued, _, Some(SitePlace { site, turn, missed, at, ahead })) => {
                let now = Timestamp::steady();
                let board = self.context.sites.board();
                // The turn may belong to the address or the domain of a host, which may be held by its name.
                let names = [Some(&site), missed.as_ref()].into_iter().flatten();
                let by_name = names.filter_map(|name| board.view(name, now)).find(|view| view.held.is_some());
                let view = by_name.or_else(|| board.view(&turn, now));
                drop(board);
                let site = if turn == site { site.to_string() } else { format!("{site} (address {turn})") };
                // Other runs may have used the site since this run checked it.
                let until = view.as_ref().map_or(at, |view| view.next_at.max(at));
                let is_taken = view.as_ref().is_some_and(|view| view.run.is_some());
                let held = view.and_then(|view| Some((view.held.filter(|(until, _)| *until > now)?, view.held_by)));
                let held = held.map(|((until, why), by)| Held { until: until.on_the_wall(), why, by: by.map(|by| by.to_string()) });
                Whereabouts::AtSite { site, until: until.on_the_wall(), held, is_taken, ahead }
            }
            (Phase::Ready | Phase::Retry | Phase::Queued, ..) => Whereabouts::Ready,
            _ => Whereabouts::Storing,
        })
    }

    /// The outcome of a request of a block with results.
    async fn result_of(&self, run: &Run, row: &StoredBlockRow, id: Fingerprint) -> Result<(Whereabouts, Option<Fingerprint>), Problem> {
        let seqs = vec![row.seq];
        let failures = self.context.store.read(ReadFailures { no: run.no, seqs: seqs.clone() }).await.map_err(|e| problem_of(&e))?;
        let of_block = failures.first().and_then(|block| of_text(&block.entries).ok()).unwrap_or_default();
        if let Some(failed) = of_block.into_iter().find(|failed| failed.request_id == id) {
            let node = match row.node.filter(|node| !node.0.is_nil()) {
                Some(node) => Some(self.named(node).await?),
                None => None,
            };
            let (kind, message) = (failed.kind(), failed.error.map(|error| error.message).unwrap_or_default());
            let (status, tries, at) = (failed.status, failed.tries, row.finish_time);
            let kind = kind.map(|kind| kind.name().to_owned());
            return Ok((Whereabouts::Failed { kind, message, status, tries, at, node }, failed.requeued_as));
        }
        let results = self.context.store.read(ReadResults { no: run.no, seqs }).await.map_err(|e| problem_of(&e))?.results;
        let index = results.first().and_then(|result| pack::read_index(&result.pack).ok());
        let status = index.and_then(|index| index.results.into_iter().find(|entry| entry.request_id == id)).map(|entry| entry.status);
        Ok((Whereabouts::Done { status, at: row.finish_time, is_acknowledged: row.acked }, None))
    }

    async fn named(&self, node: NodeId) -> Result<String, Problem> {
        let names = self.peer_names(vec![node.0]).await?;
        Ok(names.get(&node.0).map_or_else(|| node.to_string(), |name| format!("{} ({node})", shown_name(node, Some(name)))))
    }
}
