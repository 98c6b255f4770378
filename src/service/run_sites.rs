//! The sites of a run.

use super::Service;
use super::failures::{counted, damaged};
use crate::actors::reply::problem_of;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::Identity;
use crate::domain::job::JobKind;
use crate::domain::run::Run;
use crate::domain::sites::url_at;
use crate::protocol::api::Page;
use crate::protocol::failed::{Failed, of_text};
use crate::protocol::problem::Problem;
use crate::protocol::sites::RunSiteOutput;
use crate::store::{FailuresAtSites, ListRunSites, StoredRunSite};
use std::collections::HashMap;

/// Maximum number of blocks whose failures one call counts.
const MOST_COUNTED: usize = 16_384;

/// Selects the sites of a run to list.
#[derive(Debug, Clone, Default)]
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
        let from = cursor.as_deref().map(|text| text.parse::<SiteNo>().map_err(|_| wrong())).transpose()?.unwrap_or(0);
        let mut page = match self.context.addresses.runs.get(identity) {
            Some(run) => run.sites(from, *limit).wait().await?,
            None => {
                let run = self.stored_run(identity).await?;
                match run.state.is_final() {
                    true => self.sites_of_ended(&run, from as usize, *limit).await?,
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

    async fn sites_of_ended(&self, run: &Run, skip: usize, limit: usize) -> Result<Page<RunSiteOutput>, Problem> {
        let list = ListRunSites { no: run.no, skip, limit: limit + 1 };
        let mut found = self.context.store.read(list).await.map_err(|e| problem_of(&e))?;
        let is_more = found.len() > limit;
        found.truncate(limit);
        let output = |StoredRunSite { name, requests, success, error }| {
            let (policy, rules) = (&run.queue.sites, &self.context.sites.rules);
            let url = url_at(&name);
            let pace = url.as_ref().map(|url| policy.pace(url, rules)).unwrap_or_default();
            RunSiteOutput {
                name,
                left: requests.saturating_sub(success + error),
                success,
                error,
                errors: Vec::new(),
                pending: 0,
                at_nodes: 0,
                next_at: None,
                delay: pace.delay_ms.into(),
                delay_by: url.filter(|_| pace.delay_ms > 0).map(|url| policy.delay_by(pace.delay_ms, &url, false, rules)),
                connections: pace.connections,
                held: None,
                last_error: None,
            }
        };
        let items = found.into_iter().map(output).collect();
        Ok(Page { items, next_cursor: is_more.then(|| (skip + limit).to_string()) })
    }

    async fn add_errors(&self, identity: Identity, items: &mut [RunSiteOutput]) -> Result<(), Problem> {
        let sites: Vec<String> = items.iter().filter(|site| site.error > 0).map(|site| site.name.clone()).collect();
        if sites.is_empty() {
            return Ok(());
        }
        let no = self.stored_run(identity).await?.no;
        let read = FailuresAtSites { no, sites, limit: MOST_COUNTED };
        let mut by_site: HashMap<String, Vec<Failed>> = HashMap::new();
        for (site, entries) in self.context.store.read(read).await.map_err(|e| problem_of(&e))? {
            by_site.entry(site).or_default().extend(of_text(&entries).map_err(|why| damaged(&why))?);
        }
        for item in items {
            item.errors = by_site.remove(&item.name).map(counted).unwrap_or_default();
        }
        Ok(())
    }
}
