//! Sites: operators list, hold and release them.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::sites::Sites;
use crate::domain::sites::{Holds, MOST_OPERATOR_MS, SiteBy, SiteView, Why, host_of_name, site_key, site_name, url_at};
use crate::domain::time::{Timestamp, span_text};
use crate::protocol::api::Page;
use crate::protocol::ownership::{Question, RunAnswer};
use crate::protocol::problem::Problem;
use crate::protocol::sites::{HeldOutput, HoldInput, SiteFilter, SiteOutput};
use crate::store::KeepSite;
use std::collections::BTreeMap;
use std::sync::Arc;

fn output(view: SiteView, sites: &Sites, now: Timestamp) -> SiteOutput {
    SiteOutput {
        last_error: sites.trouble(&view.name).map(Into::into),
        name: view.name.to_string(),
        run: view.run,
        next_at: Some(view.next_at).filter(|at| *at > now).map(Timestamp::on_the_wall),
        delay: view.delay_ms.map(u64::from),
        failures: view.failures.into(),
        held: HeldOutput::of(view.held, view.held_by.as_deref()),
    }
}

/// The duration of a requested hold in milliseconds, at this time of the wall clock.
fn span_ms(input: &HoldInput, now: Timestamp) -> Result<i64, Problem> {
    let most = i64::from(MOST_OPERATOR_MS);
    let too_long = |field| {
        Err(Problem::invalid(
            field,
            format!("a hold lasts at most {}; hold the site again before it ends", span_text(MOST_OPERATOR_MS.into())),
        ))
    };
    match (input.until, input.for_ms) {
        (Some(until), None) => match until.since_ms(now) {
            ..=0 => Err(Problem::invalid("until", format!("{until} is over: must be after {now}"))),
            ms if ms > most => too_long("until"),
            ms => Ok(ms),
        },
        (None, Some(0)) => Err(Problem::invalid("for", "must be a number of milliseconds from 1")),
        (None, Some(ms)) => i64::try_from(ms).ok().filter(|ms| *ms <= most).map_or_else(|| too_long("for"), Ok),
        (None, None) => {
            Err(Problem::invalid("until", "the duration of the hold is missing: send `until` with an instant or `for` with milliseconds"))
        }
        (Some(_), Some(_)) => Err(Problem::invalid("for", "`until` and `for` exclude each other; send one of them")),
    }
}

fn named(text: &str) -> Result<Arc<str>, Problem> {
    site_name(text).map(Into::into).map_err(|why| Problem::invalid("name", why))
}

impl Service {
    /// Lists the sites that have state in a broker, by name.
    ///
    /// # Errors
    /// The actor that knows the other brokers is being rebuilt.
    pub async fn sites(&self, filter: SiteFilter) -> Result<Page<SiteOutput>, Problem> {
        let limit = filter.limit;
        // One more, to know whether there are more.
        let filter = SiteFilter { limit: limit + 1, ..filter };
        let mut all: BTreeMap<String, SiteOutput> = self.own_sites(&filter).into_iter().map(|site| (site.name.clone(), site)).collect();
        // A site that is lent to another broker is what that one says.
        for (_, answer) in self.ask_owners(Question::Sites(filter)).await {
            if let RunAnswer::Sites(sites) = answer {
                all.extend(sites.into_iter().map(|site| (site.name.clone(), site)));
            }
        }
        let is_more = all.len() > limit;
        let items: Vec<SiteOutput> = all.into_values().take(limit).collect();
        let next_cursor = items.last().filter(|_| is_more).map(|site| site.name.clone());
        Ok(Page { items, next_cursor })
    }

    /// The sites at the board of this broker, by name.
    #[must_use]
    pub fn own_sites(&self, filter: &SiteFilter) -> Vec<SiteOutput> {
        let SiteFilter { name, held, cursor, limit } = filter;
        let now = Timestamp::steady();
        let part = name.as_deref().unwrap_or_default().to_lowercase();
        let views = self.context.sites.board().page(&part, *held, cursor.as_deref(), *limit, now);
        views.into_iter().map(|view| output(view, &self.context.sites, now)).collect()
    }

    fn site(&self, name: &str) -> Result<SiteOutput, Problem> {
        let now = Timestamp::steady();
        let view = self.context.sites.board().view(name, now);
        let view =
            view.ok_or_else(|| Problem::not_found(format!("there is no site `{name}`: no run has sent it a request, and it is not held")))?;
        Ok(output(view, &self.context.sites, now))
    }

    /// Holds a site: no run begins a request there, and nodes return its blocks. The answer comes when the hold is stored.
    ///
    /// # Errors
    /// The name or the time is invalid, or the store failed; then nothing changes.
    pub async fn hold_site(&self, text: &str, input: &HoldInput, by: Option<String>) -> Result<SiteOutput, Problem> {
        let (name, ms) = (named(text)?, span_ms(input, Timestamp::now())?);
        let now = Timestamp::steady();
        let (before, write) = {
            // Other writers of the state of this site queue their writes in the same order.
            let mut board = self.context.sites.board();
            let before = board.own_hold(&name, now).map(|(until, _)| (until, board.held_by(&name, now)));
            let held_by: Option<Arc<str>> = by.as_deref().map(Into::into);
            let state = board.hold(&name, now.plus_ms(ms), held_by.clone(), now);
            let keep = KeepSite { name: Arc::clone(&name), state: Some(state), held_by, now: Timestamp::now() };
            (before, self.context.store.write(keep))
        };
        if let Err(error) = write.await {
            self.hold_as_before(&name, before);
            return Err(problem_of(&error));
        }
        for (_, run) in self.context.addresses.runs.all() {
            run.site_held(Arc::clone(&name));
        }
        let until = now.plus_ms(ms).on_the_wall();
        log::info!("site held name={name} until={until} by={}", by.as_deref().unwrap_or("-"));
        self.site(&name)
    }

    /// Releases a site, whatever the reason of its hold. The answer comes when that is stored; runs continue at once.
    ///
    /// # Errors
    /// The name is invalid, the site is unknown or held under another name, or the store failed; then nothing changes.
    pub async fn release_site(&self, text: &str, by: Option<String>) -> Result<SiteOutput, Problem> {
        let name = named(text)?;
        self.site(&name)?;
        let now = Timestamp::steady();
        // What an operator holds is released by its own name only. All runs wait for the board, so the names are compared without it.
        let mut others = self.context.sites.board().held_off(now);
        others.retain(|other| *other != name && self.is_part(other, &name, now));
        let (before, write) = {
            let mut board = self.context.sites.board();
            let before = board.own_hold(&name, now).map(|(until, _)| (until, board.held_by(&name, now)));
            let elsewhere = board.held_by_hand(&name, now);
            let elsewhere =
                elsewhere.or_else(|| board.hold_of(&name, now).map(|(other, until, _)| (other, until)).filter(|_| others.is_empty()));
            if let Some((other, until)) = elsewhere.filter(|_| before.is_none()) {
                let detail = format!("`{name}` is held until {} under the name `{other}`: release `{other}`", until.on_the_wall());
                return Err(Problem::conflict("held-elsewhere", detail));
            }
            let state = board.free(&name, now);
            (before, self.context.store.write(KeepSite { name: Arc::clone(&name), state, held_by: None, now: Timestamp::now() }))
        };
        if let Err(error) = write.await {
            self.hold_as_before(&name, before);
            return Err(problem_of(&error));
        }
        for other in &others {
            let mut board = self.context.sites.board();
            if board.own_hold(other, now).is_none_or(|(_, why)| why == Why::Operator) {
                continue; // an operator holds it since
            }
            let keep = KeepSite { name: Arc::clone(other), state: board.free(other, now), held_by: None, now: Timestamp::now() };
            drop(self.context.store.write_unbounded(keep));
        }
        let released: Arc<Holds> = Arc::new([&name].into_iter().chain(&others).collect());
        for (_, run) in self.context.addresses.runs.all() {
            run.sites_freed(Arc::clone(&released));
        }
        log::info!("site released name={name} by={}", by.as_deref().unwrap_or("-"));
        self.site(&name)
    }

    /// Whether a held site is an origin of this host, a host of this domain, or a host with this address.
    fn is_part(&self, held: &str, name: &str, now: Timestamp) -> bool {
        let address = self.context.sites.address(&host_of_name(held), now).flatten();
        url_at(held).is_some_and(|url| [SiteBy::Host, SiteBy::Domain, SiteBy::Ip].iter().any(|by| site_key(&url, *by, address) == name))
    }

    /// Restores the previous hold after a failed write.
    fn hold_as_before(&self, name: &str, before: Option<(Timestamp, Option<Arc<str>>)>) {
        let (mut board, now) = (self.context.sites.board(), Timestamp::steady());
        match before {
            Some((until, by)) => drop(board.hold(name, until, by, now)),
            None => drop(board.free(name, now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_lasts_until_an_instant_or_for_a_time() {
        let now = Timestamp(1_000_000);
        let span = |until: Option<i64>, for_ms| span_ms(&HoldInput { until: until.map(Timestamp), for_ms }, now);
        assert_eq!((span(Some(1_060_000), None), span(None, Some(600_000))), (Ok(60_000), Ok(600_000)));
        let most = i64::from(MOST_OPERATOR_MS);
        assert_eq!((span(Some(now.0 + most), None), span(None, Some(most as u64))), (Ok(most), Ok(most)));
        for (until, for_ms, field) in [
            (None, None, "until"),
            (Some(2_000_000), Some(1), "for"),
            (Some(1_000_000), None, "until"),
            (Some(now.0 + most + 1), None, "until"),
            (None, Some(0), "for"),
            (None, Some(most as u64 + 1), "for"),
            (None, Some(u64::MAX), "for"),
        ] {
            let problem = span(until, for_ms).expect_err("it makes no sense");
            assert_eq!((problem.status, problem.field.as_deref()), (422, Some(field)), "{until:?} {for_ms:?}");
        }
    }
}
