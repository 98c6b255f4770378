//! The versions of projects, and the runs of their spiders.

use crate::actors::packages::Incoming;
use crate::domain::ids::Identity;
use crate::domain::job::JobKind;
use crate::domain::run::{Run, RunState};
use crate::edge::Edge;
use crate::edge::http::MOST;
use crate::protocol::api::JobInput;
use crate::protocol::problem::Problem;
use crate::protocol::scrapyd::{GROUP, MOST_FINISHED, SPIDERS_LINE, SpiderOrder, Version};
use crate::service::{JobFilter, LogFilter, TriggerOrder};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// How long a node may take to list the spiders of an egg.
const LISTING: Duration = Duration::from_secs(120);
/// How long to wait for a node that may start it.
const NODE: Duration = Duration::from_secs(10);
/// How long to wait for a line of the log before the state of the run is checked.
const LINE: Duration = Duration::from_secs(1);
/// Runs that are not over of which the lists know.
const MOST_OPEN: usize = 100_000;
/// Lines of the log that an error shows.
const SHOWN: usize = 30;

/// All versions of a project, or of all projects, the latest last.
///
/// # Errors
/// The store fails.
pub async fn versions(edge: &Edge, project: Option<&str>) -> Result<Vec<Version>, Problem> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let filter = JobFilter {
            group: Some(GROUP.to_owned()),
            kind: Some(JobKind::Application),
            cursor: cursor.take(),
            limit: MOST,
            ..JobFilter::default()
        };
        let page = edge.service.jobs(filter).await?;
        let versions = page.items.into_iter().filter_map(|item| Version::of(item.job));
        found.extend(versions.filter(|version| project.is_none_or(|project| version.project == project)));
        cursor = page.next_cursor;
        if cursor.is_none() {
            found.sort_by_cached_key(|found: &Version| (found.project.clone(), Version::order(&found.version)));
            return Ok(found);
        }
    }
}

/// The versions of a project, at least one.
///
/// # Errors
/// The project does not exist.
pub async fn of_project(edge: &Edge, project: &str) -> Result<Vec<Version>, Problem> {
    let found = versions(edge, Some(project)).await?;
    if found.is_empty() { Err(Problem::not_found(format!("project '{project}' not found"))) } else { Ok(found) }
}

/// The named version of a project, or the latest one.
///
/// # Errors
/// It does not exist.
pub async fn the_version(edge: &Edge, project: &str, version: Option<&str>) -> Result<Version, Problem> {
    let mut found = of_project(edge, project).await?;
    match version.filter(|version| !version.is_empty()) {
        None => found.pop().ok_or_else(Problem::internal),
        Some(name) => {
            let named = found.into_iter().find(|found| found.version == name);
            named.ok_or_else(|| Problem::not_found(format!("version '{name}' not found")))
        }
    }
}

/// Stores an egg as a version, and lets a node list its spiders. Returns their number.
///
/// # Errors
/// The egg is no package, or no node can list its spiders.
pub async fn add(edge: &Edge, project: &str, version: &str, egg: Incoming, by: Option<String>) -> Result<usize, Problem> {
    let name = format!("{project} {version}.egg").chars().take(MOST_FILE_NAME).collect();
    let stored = edge.service.keep_package(egg, Some(name), "application/zip".to_owned(), by.clone()).await;
    let package = stored.map_err(|problem| {
        if problem.status == 422 { Problem::invalid("egg", format!("egg is not a usable ZIP file: {}", problem.detail)) } else { problem }
    })?;
    let before = versions(edge, Some(project)).await?.into_iter().find(|known| known.version == version);
    let job = match &before {
        Some(known) => edge.service.update_job(known.job, known.with_package(&package.url), by.clone()).await?,
        None => edge.service.create_job(Version::input(project, version, &package.url), by.clone()).await?,
    };
    let added = Version::of(job.job).ok_or_else(Problem::internal)?;
    let listed = spiders(edge, &added, by.clone()).await;
    match (&listed, before) {
        (Ok(_), Some(before)) if before.package() != added.package() => remove_egg(edge, &before).await?,
        (Ok(_), _) => {}
        (Err(_), None) => remove(edge, &added, by).await?,
        (Err(_), Some(before)) => {
            // If it has been changed meanwhile, it stays as it is.
            let old = JobInput { properties: Some(before.properties.0.clone()), version: Some(added.job_version), ..JobInput::default() };
            if edge.service.update_job(before.job, old, by).await.is_ok() {
                remove_egg(edge, &added).await?;
            }
        }
    }
    listed.map(|spiders| spiders.len())
}

/// The longest name of a package, in characters.
const MOST_FILE_NAME: usize = 200;

/// The spiders of a version. A node lists them once.
///
/// # Errors
/// No node can list them.
pub async fn spiders(edge: &Edge, version: &Version, by: Option<String>) -> Result<Vec<String>, Problem> {
    if let Some(spiders) = version.spiders() {
        return Ok(spiders);
    }
    let order = TriggerOrder { by: by.clone(), ..TriggerOrder::default() };
    let run = edge.service.trigger(version.job, order).await?.identity;
    let spiders = match listed(edge, run).await {
        Ok(spiders) => spiders,
        Err(problem) => {
            // The run may be over; then there is nothing to stop.
            let _ = edge.service.stop_run(run, by.as_deref()).await;
            return Err(problem);
        }
    };
    match edge.service.update_job(version.job, version.with_spiders(&spiders)?, by).await {
        // The version got another egg meanwhile, whose spiders are listed by that call.
        Err(problem) if problem.status != 409 => Err(problem),
        _ => Ok(spiders),
    }
}

/// Waits until a run has listed the spiders.
async fn listed(edge: &Edge, run: Identity) -> Result<Vec<String>, Problem> {
    let began = Instant::now();
    loop {
        let filter = LogFilter { text: Some(SPIDERS_LINE.to_owned()), limit: 1, wait: LINE, ..LogFilter::default() };
        let page = edge.service.logs(run, filter).await?;
        if let Some(line) = page.items.first() {
            let text = line.text.split_once(SPIDERS_LINE).map_or("", |(_, text)| text);
            return serde_json::from_str(text)
                .map_err(|_| Problem::conflict("spiders", "the node sent a list of spiders that cannot be read"));
        }
        if page.state.is_final() {
            return Err(Problem::conflict("spiders", why_not(edge, run).await?));
        }
        let waited = began.elapsed();
        if waited > LISTING || waited > NODE && page.state == RunState::Pending {
            let reason = edge.service.run(run).await?.reason.unwrap_or_else(|| "the program did not end".to_owned());
            let detail = format!(
                "no node has listed the spiders of the egg: {reason}. Start an agent with --applications, and with the Python package \
                 webloom[scrapy] in its PATH"
            );
            return Err(Problem::conflict("spiders", detail));
        }
    }
}

/// The reason of a run that failed, and the last lines of its program.
async fn why_not(edge: &Edge, run: Identity) -> Result<String, Problem> {
    let reason = edge.service.run(run).await?.reason.unwrap_or_else(|| "it listed no spiders".to_owned());
    let page = edge.service.logs(run, LogFilter { limit: MOST, ..LogFilter::default() }).await?;
    let lines: Vec<&str> = page.items.iter().filter(|line| line.source != "broker").map(|line| line.text.as_str()).collect();
    let last = lines[lines.len().saturating_sub(SHOWN)..].join("\n");
    Ok(format!("the spiders of the egg cannot be listed: {reason}\n{last}").trim_end().to_owned())
}

/// Deletes a version. Its egg is deleted too if nothing else uses it; its runs stay.
///
/// # Errors
/// The store fails.
pub async fn remove(edge: &Edge, version: &Version, by: Option<String>) -> Result<(), Problem> {
    edge.service.delete_job(version.job, None, by).await?;
    remove_egg(edge, version).await
}

/// Deletes the egg of a version, unless something else uses it.
async fn remove_egg(edge: &Edge, version: &Version) -> Result<(), Problem> {
    match version.package().and_then(|url| url.rsplit('/').next()) {
        Some(sha256) => match edge.service.remove_package(sha256).await {
            Err(problem) if !matches!(problem.status, 404 | 409) => Err(problem),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

/// A run of a spider.
#[derive(Debug)]
pub struct SpiderRun {
    /// Its order.
    pub order: SpiderOrder,
    /// Its row.
    pub run: Run,
    /// Its state now.
    pub state: RunState,
}

/// The spider runs: all that are not over, and the last ones that are, the newest first.
///
/// # Errors
/// The store fails.
pub async fn spider_runs(edge: &Edge, project: Option<&str>) -> Result<Vec<SpiderRun>, Problem> {
    let projects: BTreeMap<_, _> = versions(edge, None).await?.into_iter().map(|version| (version.job, version.project)).collect();
    let mut found = Vec::new();
    let mut known = HashSet::new();
    for state in [RunState::Pending, RunState::Scheduled, RunState::Running, RunState::Failed, RunState::Success, RunState::Stopped] {
        let most = if state.is_final() { MOST_FINISHED } else { MOST_OPEN };
        for (run, state) in edge.service.program_runs(GROUP, state, most).await? {
            let Some(mut order) = SpiderOrder::of_run(run.arguments.as_deref(), run.identity) else { continue };
            if order.project.is_empty() {
                order.project = projects.get(&run.job_id).cloned().unwrap_or_default();
            }
            // A run that changed its state in between is found twice.
            if known.insert(run.identity) && project.is_none_or(|project| order.project == project) {
                found.push(SpiderRun { order, run, state });
            }
        }
    }
    found.sort_by_key(|found| std::cmp::Reverse(found.run.no));
    let mut finished = 0;
    found.retain(|found| {
        finished += usize::from(found.state.is_final());
        !found.state.is_final() || finished <= MOST_FINISHED
    });
    Ok(found)
}
