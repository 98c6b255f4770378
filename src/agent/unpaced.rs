//! A block without a pace: ThreadNum requests at a time, in their order. If the broker accepts parts, a request that waits longer than
//! others leaves its slot ([`Slots`]), and a block that only waits leaves its slot at the node to another block.

use super::asked::{earlier_tries, request_id};
use super::block::{Cut, Ports, ended, guarded, last_part};
use super::crowd::{HostKey, Visit, host_of, origin_of};
use super::download::{Downloader, Outcome, Rules};
use super::paced::{AtWork, at};
use super::parts::Reports;
use super::slots::{Millis, PATIENCE, Slots};
use crate::protocol::node::GivenBack;
use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// A pause that another block met this long before the beginning of a block still counts for it.
const RECENT: Duration = Duration::from_secs(2);

/// Downloads the requests of a block without a pace. Returns the requests that another node should try.
pub async fn unpaced(
    downloader: &Downloader,
    rules: &Rules,
    requests: &[&RawValue],
    reports: &mut Reports,
    ports: Ports<'_>,
) -> Result<Vec<GivenBack>, Cut> {
    let _at_work = AtWork::begin(&downloader.blocks);
    let mut back = Vec::new();
    let (memory, crowd) = (&downloader.memory, &downloader.crowd);
    let thread_num = rules.settings.thread_num.max(1) as usize;
    let (keys, hosts) = hosts(rules, requests);
    let mut slots = Slots::new(thread_num, hosts.clone());
    let most_at_host = thread_num.saturating_mul(downloader.slots);
    // What requests in progress hold: their visits, and the permits of those that have left their slots.
    let mut visits: HashMap<usize, Visit> = HashMap::new();
    let mut permits: HashMap<usize, OwnedSemaphorePermit> = HashMap::new();
    let mut has_slot = true;
    let epoch = Instant::now();
    // Pauses that the block has not looked at; also those of a moment ago, of which the broker may not have known when it sent the block.
    let mut pauses_since = epoch.checked_sub(RECENT).unwrap_or(epoch);
    let mut at_work = FuturesUnordered::new();
    let mut order = Order::new(requests);
    let mut posting: Option<LocalBoxFuture<'_, bool>> = None;
    loop {
        // Subscribe before checking the state that they signal.
        let (eased, pressed) = (memory.eased.notified(), memory.pressed.notified());
        let (crowd_eased, paused) = (crowd.eased.notified(), crowd.paused.notified());
        let now = millis(epoch.elapsed());
        if rules.holds {
            let origins = crowd.paused_since(std::mem::replace(&mut pauses_since, Instant::now()));
            if !origins.is_empty() {
                // Another block has met the answer, and reports it.
                give_back(&mut slots, requests, |origin| origins.contains(origin), &mut back);
            }
        }
        let may_begin = !reports.are_parts || !(memory.is_tight() || reports.are_behind());
        let mut is_refused = false;
        if reports.are_parts {
            // A loop, because several may have begun at once.
            while slots.next_leave().is_some_and(|at| at <= now) {
                slots.leave(now, |place| {
                    let permit = Arc::clone(&downloader.waiting).try_acquire_owned().ok();
                    permit.map(|permit| permits.insert(place, permit)).is_some()
                });
            }
        }
        loop {
            let (mut full, mut visit) = (None, None);
            let may_begin_at = |place: usize| {
                if full != Some(hosts[place]) {
                    visit = crowd.enter(&keys[hosts[place]], most_at_host);
                    full = visit.is_none().then_some(hosts[place]);
                }
                visit.is_some()
            };
            let begun = if may_begin { slots.begin(now, may_begin_at) } else { None };
            is_refused |= full.is_some();
            let Some(place) = begun else { break };
            visits.extend(visit.map(|visit| (place, visit)));
            at_work.push(guarded(downloader.fetch(rules, requests[place].get())).map(move |outcome| (place, outcome)));
        }
        if slots.are_over() {
            break;
        }
        if has_slot && reports.are_parts && slots.only_wait() {
            has_slot = !(ports.leave)();
        }
        let mut due = None;
        if posting.is_none() {
            let (part, next) = reports.due(downloader.blocks.get(), memory.is_tight());
            (posting, due) = (part.map(ports.post), next);
        }
        // Only a request that has not begun, or the slot of the block, is worth a look at the slots.
        let leave = match slots.next_leave() {
            // The block must keep its slot for now: it tries again.
            None if has_slot && slots.only_wait() => Some(now.saturating_add(PATIENCE)),
            next => next.filter(|_| may_begin || has_slot),
        };
        let leave = leave.filter(|_| reports.are_parts).map(|at| epoch + Duration::from_millis(at));
        tokio::select! {
            Some((place, mut outcome)) = at_work.next() => {
                slots.end(place);
                drop((visits.remove(&place), permits.remove(&place)));
                outcome.tries = outcome.tries.saturating_add(earlier_tries(requests[place].get()));
                if let Some(pause) = outcome.pause {
                    let origin = origin_of(requests[place].get());
                    give_back(&mut slots, requests, |other| *other == origin, &mut back);
                    crowd.pause(origin);
                    if let Some(request_id) = request_id(requests[place].get()) {
                        reports.pause(request_id, pause.retry_after);
                        if pause.may_repeat && outcome.tries <= downloader.retries(rules) {
                            // No error: the site has answered.
                            back.push(GivenBack::new(request_id, outcome.tries));
                            continue;
                        }
                    }
                }
                if reports.are_parts && outcome.is_for_another {
                    let request_id = request_id(requests[place].get());
                    let given = |request_id| GivenBack { error: outcome.answer.error, ..GivenBack::new(request_id, outcome.tries) };
                    back.extend(request_id.map(given));
                } else if reports.are_parts {
                    reports.add(requests[place].get(), outcome);
                } else {
                    order.add(place, outcome, reports);
                }
            }
            is_accepted = ended(&mut posting), if posting.is_some() => {
                posting = None;
                if !is_accepted {
                    return Err(Cut::Lost);
                }
            }
            () = at(leave), if leave.is_some() => {}
            () = at(due), if due.is_some() && posting.is_none() => {}
            () = crowd_eased, if is_refused => {}
            () = paused, if rules.holds => {}
            () = eased, if !may_begin => {}
            () = pressed, if posting.is_none() && reports.open_since().is_some() => {}
        }
    }
    last_part(posting).await?;
    Ok(back)
}

/// Gives back the requests to some origins that have not begun.
fn give_back(slots: &mut Slots, requests: &[&RawValue], is_it: impl Fn(&String) -> bool, back: &mut Vec<GivenBack>) {
    let withdrawn = slots.withdraw(|place| is_it(&origin_of(requests[place].get())));
    back.extend(withdrawn.into_iter().filter_map(|place| {
        let text = requests[place].get();
        Some(GivenBack::new(request_id(text)?, earlier_tries(text)))
    }));
}

/// The hosts of the requests, and the number of the host of each request.
fn hosts(rules: &Rules, requests: &[&RawValue]) -> (Vec<HostKey>, Vec<usize>) {
    let (mut keys, mut numbers) = (Vec::new(), HashMap::<String, usize>::new());
    let number = |request: &&RawValue| {
        let host = host_of(request.get(), rules.settings.site.proxy.as_deref());
        if let Some(number) = numbers.get(&host) {
            return *number;
        }
        keys.push((rules.identity, Rc::from(host.as_str())));
        numbers.insert(host, keys.len() - 1);
        keys.len() - 1
    };
    let hosts = requests.iter().map(number).collect();
    (keys, hosts)
}

fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Sorts outcomes into the order of their requests.
struct Order<'a> {
    requests: &'a [&'a RawValue],
    /// Outcomes that finished before earlier requests.
    early: Vec<Option<Outcome>>,
    next: usize,
}

impl<'a> Order<'a> {
    fn new(requests: &'a [&'a RawValue]) -> Self {
        Self { requests, early: Vec::new(), next: 0 }
    }

    fn add(&mut self, place: usize, outcome: Outcome, reports: &mut Reports) {
        if self.early.is_empty() {
            self.early.resize_with(self.requests.len(), || None);
        }
        self.early[place] = Some(outcome);
        while let Some(outcome) = self.early.get_mut(self.next).and_then(Option::take) {
            reports.add(self.requests[self.next].get(), outcome);
            self.next += 1;
        }
    }
}
