//! The sites of a run.

use super::Service;
use super::failures::{Counts, count, sorted};
use crate::actors::reply::problem_of;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::Identity;
use crate::domain::job::JobKind;
use crate::domain::run::Run;
use crate::protocol::api::Page;
use crate::protocol::problem::Problem;
use crate::protocol::sites::RunSiteOutput;
use crate::store::{ListRunSites, StoredRunSite};
use std::collections::HashMap;

/// How a cursor of a run that is over begins; the name of a site follows. One of an active run is a number.
const AFTER_SITE: char = '=';

/// Selects the sites of a run to list.
#[derive(Debug)]
pub struct RunSiteFilter {
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of items in the answer.
    pub limit: usize,
    /// With the failed requests of each site by kind.
    pub errors: bool,
}

impl Service {
    /// The sites of a run, in the order in which the run met them; those of a run that is over by name.
    ///
    /// # Errors
    /// The run does not exist, the cursor is invalid, or the run's actor is being built.
    pub async fn run_sites(&self, identity: Identity, filter: &RunSiteFilter) -> Result<Page<RunSiteOutput>, Problem> {
        let RunSiteFilter { cursor, limit, errors } = filter;
        let wrong = || Problem::invalid("cursor", "not a cursor of this list: send the `nextCursor` of the page before");
        let known = match self.context.addresses.runs.get(identity) {
            Some(run) => {
                let from = cursor.as_deref().map(|text| text.parse::<SiteNo>().map_err(|_| wrong())).transpose()?;
                match self.context.answer_of(identity, run.sites(from.unwrap_or(0), *limit)).await {
                    Err(problem) if problem.kind == "/problems/run-over" => None,
                    other => Some(other?),
                }
            }
            None => None,
        };
        let mut page = match known {
            Some(page) => page,
            None => {
                let run = self.stored_run(identity).await?;
                match run.state.is_final() {
                    true => {
                        let after = cursor.as_deref().map(|text| text.strip_prefix(AFTER_SITE).ok_or_else(wrong)).transpose()?;
                        self.sites_of_ended(&run, after.unwrap_or_default(), *limit).await?
                    }
                    false if run.kind != JobKind::Block || run.queued => Page { items: Vec::new(), next_cursor: None },
                    false => return Err(Problem::busy("the run's actor is starting; retry later")),
                }
            }
        };
        if *errors {
            self.add_errors(identity, &mut page.items).await?;
        }
        Ok(page)
    }

    async fn sites_of_ended(&self, run: &Run, after: &str, limit: usize) -> Result<Page<RunSiteOutput>, Problem> {
        let list = ListRunSites { no: run.no, after: after.to_owned(), limit: limit + 1 };
        let mut found = self.context.store.read(list).await.map_err(|e| problem_of(&e))?;
        let is_more = found.len() > limit;
        found.truncate(limit);
        let next_cursor = found.last().filter(|_| is_more).map(|last| format!("{AFTER_SITE}{}", last.name));
        // The pace that it had is not stored.
        let output = |StoredRunSite { name, requests, success, error }| RunSiteOutput {
            name,
            left: requests.saturating_sub(success + error),
            success,
            error,
            errors: Vec::new(),
            pending: 0,
            at_nodes: 0,
            next_at: None,
            delay: None,
            delay_by: None,
            connections: None,
            held: None,
            last_error: None,
        };
        Ok(Page { items: found.into_iter().map(output).collect(), next_cursor })
    }

    async fn add_errors(&self, identity: Identity, items: &mut [RunSiteOutput]) -> Result<(), Problem> {
        let sites: Vec<String> = items.iter().filter(|site| site.error > 0).map(|site| site.name.clone()).collect();
        if sites.is_empty() {
            return Ok(());
        }
        let no = self.stored_run(identity).await?.no;
        let mut by_site: HashMap<String, Counts> = sites.iter().map(|site| (site.clone(), Counts::new())).collect();
        let take = |site: Option<&str>, failed: &_| {
            if let Some(counts) = site.and_then(|site| by_site.get_mut(site)) {
                count(counts, failed);
            }
        };
        self.count_failures(no, sites, take).await?;
        for item in items {
            item.errors = by_site.remove(&item.name).map(sorted).unwrap_or_default();
        }
        Ok(())
    }
}
