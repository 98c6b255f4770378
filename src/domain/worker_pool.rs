//! Which worker gets a task, or a run of a block job.
//!
//! A task uses a slot of its worker. Tasks with the same requirements for a worker wait in one *lane*, ordered by priority and then by
//! arrival. A slot that becomes free goes to the first task of all lanes that its worker may serve. A run of a block job uses no slot,
//! so it waits only if no connected worker suits it.

mod ask;

pub use ask::{Ask, Asked, Asker, Grant, Obstacle, Refusal, WorkerCapacity};

use super::ids::WorkerId;
use super::task::{Strategy, TaskSettings};
use super::worker::NotEligible;
use ask::Member;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Maximum number of keys that the strategy `sticky` remembers; beyond that it starts over.
const MOST_KEYS: usize = 100_000;

/// The common properties of the tasks in a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct LaneKey {
    handler: Arc<str>,
    group: Option<String>,
    version: Option<String>,
    tags: Vec<String>,
    /// Their strategy names one worker, which may change when a worker joins or leaves.
    bound: bool,
    /// They wait for exactly this worker.
    target: Option<WorkerId>,
}

type Place = (Reverse<i32>, u64);

/// See the module documentation.
#[derive(Debug, Default)]
pub struct WorkerPool {
    members: BTreeMap<WorkerId, Member>,
    lanes: BTreeMap<LaneKey, BTreeMap<Place, Ask>>,
    /// The lane and position of each waiting instance.
    waiting: HashMap<Asker, (LaneKey, Place)>,
    /// The worker that last got a task of this handler, for `roundRobin`.
    last: HashMap<Arc<str>, WorkerId>,
    /// The worker that last had this key of this handler, for `sticky`.
    stuck: HashMap<(Arc<str>, u64), WorkerId>,
    turn: u64,
}

fn mixed(key: u64, worker: WorkerId) -> u64 {
    // Compared only within one process.
    let mut hasher = std::hash::DefaultHasher::new();
    (key, worker).hash(&mut hasher);
    hasher.finish()
}

impl WorkerPool {
    /// A worker joins or changes its properties; its current tasks stay counted. `barred`: an operator blocks new work for it; passed
    /// here because otherwise it could get work before a later call.
    pub fn join(&mut self, id: WorkerId, hand: WorkerCapacity, open: bool, barred: Option<String>) -> Vec<Grant> {
        self.turn += 1;
        let life = self.turn;
        let is_new = !self.members.contains_key(&id);
        let member = self.members.entry(id).or_insert_with(|| Member {
            hand: WorkerCapacity::default(),
            open,
            barred: None,
            taken: 0,
            life,
            used: 0,
        });
        (member.hand, member.open, member.barred) = (hand, open, barred);
        self.redirect();
        // A new worker can only offer its own slots, unless tasks wait for certain workers.
        if is_new && !self.lanes.keys().any(|key| key.bound) { self.serve(id) } else { self.serve_all() }
    }

    /// Sets whether it is reachable.
    pub fn set_open(&mut self, id: WorkerId, open: bool) -> Vec<Grant> {
        match self.members.get_mut(&id) {
            Some(member) if member.open != open => member.open = open,
            _ => return Vec::new(),
        }
        // Reachability does not change which worker is suitable: only its own slots can be granted.
        self.serve(id)
    }

    /// Blocks or allows new work by order of an operator.
    pub fn bar(&mut self, id: WorkerId, barred: Option<String>) -> Vec<Grant> {
        match self.members.get_mut(&id) {
            Some(member) if member.barred != barred => member.barred = barred,
            _ => return Vec::new(),
        }
        self.redirect();
        self.serve_all()
    }

    /// A worker leaves. Returns the slots that others get now, and the instances that waited for exactly this worker.
    pub fn leave(&mut self, id: WorkerId) -> (Vec<Grant>, Vec<Asker>) {
        self.members.remove(&id);
        self.redirect();
        let orphans = self.lanes.iter().filter(|(key, _)| key.target == Some(id)).flat_map(|(_, lane)| lane.values());
        let orphans = orphans.filter(|ask| ask.only == Some(id)).map(|ask| ask.asker).collect();
        // Other slots become usable only for tasks bound to certain workers, or tasks that avoided other workers while this one was there.
        let concerns_others = self.lanes.iter().any(|(key, lane)| key.bound || lane.values().any(|ask| !ask.excluded.is_empty()));
        (if concerns_others { self.serve_all() } else { Vec::new() }, orphans)
    }

    /// A worker has a task without a grant: it got the task before this worker pool existed.
    pub fn occupy(&mut self, id: WorkerId) -> Option<u64> {
        let member = self.members.get_mut(&id)?;
        member.taken += 1;
        Some(member.life)
    }

    /// Releases a slot.
    pub fn release(&mut self, id: WorkerId, life: u64) -> Vec<Grant> {
        match self.members.get_mut(&id) {
            Some(member) if member.life == life => member.taken = member.taken.saturating_sub(1),
            _ => return Vec::new(),
        }
        self.serve(id)
    }

    /// Requests a worker for a task. Without a grant the task waits from now on.
    pub fn ask(&mut self, ask: Ask) -> Asked {
        self.withdraw(ask.asker);
        let target = self.target(&ask);
        let key = LaneKey {
            handler: Arc::clone(&ask.handler),
            group: ask.settings.group.clone(),
            version: ask.settings.version.clone(),
            tags: ask.settings.tags.clone(),
            bound: matches!(ask.settings.strategy, Strategy::Hash | Strategy::Failover | Strategy::Sticky),
            target: target.or(ask.only),
        };
        // No waiting task can use a free slot: they were checked when the slot became free.
        if let Some(worker) = self.choose(&ask, key.target, |_, member| member.taken) {
            return Asked::Granted(self.grant(&ask, worker));
        }
        let asked = if self.suitable(&ask).next().is_some() { Asked::Waits } else { Asked::NoWorker(self.not_eligible(&ask.handler)) };
        self.turn += 1;
        let place = (Reverse(ask.priority), self.turn);
        self.waiting.insert(ask.asker, (key.clone(), place));
        self.lanes.entry(key).or_default().insert(place, ask);
        asked
    }

    /// Withdraws a request.
    pub fn withdraw(&mut self, asker: Asker) {
        if let Some((key, place)) = self.waiting.remove(&asker)
            && let Some(lane) = self.lanes.get_mut(&key)
        {
            lane.remove(&place);
            if lane.is_empty() {
                self.lanes.remove(&key);
            }
        }
    }

    /// All workers that are suitable for a handler, by name: those of a broadcast. At least one.
    ///
    /// # Errors
    /// There is none; the value is the reason.
    pub fn all(&self, handler: &str, settings: &TaskSettings) -> Result<Vec<WorkerId>, NotEligible> {
        let mut all: Vec<_> = self.members.iter().filter(|(_, member)| member.suits(handler, settings, true)).collect();
        all.sort_by(|a, b| (&a.1.hand.name, a.0).cmp(&(&b.1.hand.name, b.0)));
        if all.is_empty() { Err(self.not_eligible(handler)) } else { Ok(all.into_iter().map(|(id, _)| *id).collect()) }
    }

    /// Number of waiting tasks.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Why no connected worker is eligible for work of this handler, if that is so.
    #[must_use]
    pub fn not_eligible(&self, handler: &str) -> NotEligible {
        let watching = || self.members.iter().filter(|(_, member)| member.watches(handler));
        if watching().next().is_none() {
            NotEligible::Unwatched
        } else if watching().all(|(_, member)| member.barred.is_some()) {
            NotEligible::Disabled(watching().map(|(id, member)| (*id, member.hand.name.clone())).collect())
        } else {
            NotEligible::Unsuitable
        }
    }

    /// The connected workers, by name, and for each the first reason why it does not get the waiting task.
    #[must_use]
    pub fn explain(&self, ask: &Ask) -> Vec<Refusal> {
        let mut all: Vec<Refusal> = self
            .members
            .iter()
            .map(|(id, member)| Refusal { worker: *id, name: member.hand.name.clone(), why: member.refuses(*id, ask) })
            .collect();
        all.sort_by(|a, b| (&a.name, a.worker).cmp(&(&b.name, b.worker)));
        all
    }

    fn suitable<'a>(&'a self, ask: &'a Ask) -> impl Iterator<Item = (WorkerId, &'a Member)> {
        let is_meant = move |id: &WorkerId| ask.only.is_none_or(|only| only == *id);
        let suits = move |member: &Member| member.suits(&ask.handler, &ask.settings, ask.needs_slot);
        self.members.iter().filter(move |(id, member)| is_meant(id) && suits(member)).map(|(id, member)| (*id, member))
    }

    /// The worker that the task waits for even if it has no free slot.
    fn target(&self, ask: &Ask) -> Option<WorkerId> {
        let not_excluded = |id: &WorkerId| !ask.excluded.contains(id);
        // Use those that did not complete it only if there is no other.
        let has_other = self.suitable(ask).any(|(id, _)| not_excluded(&id));
        let all = self.suitable(ask).filter(|(id, _)| !has_other || not_excluded(id));
        match ask.settings.strategy {
            Strategy::Hash => all.max_by_key(|(id, _)| (mixed(ask.key, *id), *id)).map(|(id, _)| id),
            Strategy::Failover => all.min_by(|a, b| (&a.1.hand.name, a.0).cmp(&(&b.1.hand.name, b.0))).map(|(id, _)| id),
            Strategy::Sticky => {
                let id = *self.stuck.get(&(Arc::clone(&ask.handler), ask.key))?;
                self.suitable(ask).any(|(other, _)| other == id && not_excluded(&id)).then_some(id)
            }
            _ => None,
        }
    }

    /// A worker with a free slot, chosen by the strategy.
    fn choose(&self, ask: &Ask, target: Option<WorkerId>, load: impl Fn(WorkerId, &Member) -> u32) -> Option<WorkerId> {
        let has_other = !ask.excluded.is_empty() && self.suitable(ask).any(|(id, _)| !ask.excluded.contains(&id));
        let may = |id: WorkerId| !(has_other && ask.excluded.contains(&id));
        let free = || {
            self.suitable(ask)
                .filter(move |(id, member)| member.has_place(ask.needs_slot) && may(*id) && target.is_none_or(|target| target == *id))
        };
        match ask.settings.strategy {
            Strategy::RoundRobin => {
                let last = self.last.get(&ask.handler);
                free().find(|(id, _)| last.is_none_or(|last| id > last)).or_else(|| free().next()).map(|(id, _)| id)
            }
            Strategy::Random => {
                let count = free().count() as u64;
                free().nth((ask.chance.checked_rem(count)?) as usize).map(|(id, _)| id)
            }
            Strategy::LeastLoaded | Strategy::Shard => free()
                // Compares load/slots without a division.
                .map(|(id, member)| (id, u64::from(load(id, member)), u64::from(member.hand.slots.max(1)), member.used))
                .min_by(|(_, load_a, slots_a, used_a), (_, load_b, slots_b, used_b)| {
                    (load_a * slots_b, used_a).cmp(&(load_b * slots_a, used_b))
                })
                .map(|(id, ..)| id),
            _ => free().min_by_key(|(id, member)| (member.used, *id)).map(|(id, _)| id),
        }
    }

    /// A worker for a run of a block job; it takes no slot. `load`: the number of tasks and runs that a worker has now.
    ///
    /// # Errors
    /// No worker is eligible; the value is the reason.
    pub fn find(&mut self, ask: &Ask, load: impl Fn(WorkerId) -> u32) -> Result<WorkerId, NotEligible> {
        let target = self.target(ask);
        match self.choose(ask, target, |id, _| load(id)) {
            Some(worker) => {
                self.note_choice(ask, worker);
                Ok(worker)
            }
            None => Err(self.not_eligible(&ask.handler)),
        }
    }

    /// Whether this worker may get such work.
    #[must_use]
    pub fn suits(&self, id: WorkerId, ask: &Ask) -> bool {
        self.members.get(&id).is_some_and(|member| member.suits(&ask.handler, &ask.settings, ask.needs_slot))
    }

    /// The names that a worker watches.
    #[must_use]
    pub fn watched_by(&self, id: WorkerId) -> Vec<String> {
        self.members.get(&id).map(|member| member.hand.handlers.clone()).unwrap_or_default()
    }

    fn grant(&mut self, ask: &Ask, worker: WorkerId) -> Grant {
        self.note_choice(ask, worker);
        let member = self.members.get_mut(&worker).expect("it was chosen among the members");
        member.taken += 1;
        Grant { asker: ask.asker, worker, life: member.life }
    }

    /// Remembers a choice, for the strategies that depend on earlier ones.
    fn note_choice(&mut self, ask: &Ask, worker: WorkerId) {
        self.turn += 1;
        if ask.settings.strategy == Strategy::Sticky {
            if self.stuck.len() >= MOST_KEYS {
                self.stuck.clear();
            }
            self.stuck.insert((Arc::clone(&ask.handler), ask.key), worker);
        }
        match self.last.get_mut(&ask.handler) {
            Some(last) => *last = worker,
            None => drop(self.last.insert(Arc::clone(&ask.handler), worker)),
        }
        if let Some(member) = self.members.get_mut(&worker) {
            member.used = self.turn;
        }
    }

    /// Grants the slots of one worker to the tasks that waited longest.
    fn serve(&mut self, id: WorkerId) -> Vec<Grant> {
        let mut grants = Vec::new();
        while self.members.get(&id).is_some_and(|member| member.has_place(true)) {
            let member = &self.members[&id];
            let first = self
                .lanes
                .iter()
                .filter(|(key, _)| key.target.is_none_or(|target| target == id) && member.watches(&key.handler))
                .filter_map(|(key, lane)| {
                    let (place, _) = lane.iter().find(|(_, ask)| self.choose_here(ask, id))?;
                    Some((*place, key))
                })
                .min_by_key(|(place, _)| *place);
            let Some((place, key)) = first.map(|(place, key)| (place, key.clone())) else { break };
            let ask = self.lanes.get_mut(&key).and_then(|lane| lane.remove(&place)).expect("it was found there");
            if self.lanes.get(&key).is_some_and(BTreeMap::is_empty) {
                self.lanes.remove(&key);
            }
            self.waiting.remove(&ask.asker);
            grants.push(self.grant(&ask, id));
        }
        grants
    }

    /// Whether a waiting task may have a slot of this worker.
    fn choose_here(&self, ask: &Ask, id: WorkerId) -> bool {
        let suits = |member: &Member| member.suits(&ask.handler, &ask.settings, ask.needs_slot);
        let is_suitable = ask.only.is_none_or(|only| only == id) && self.members.get(&id).is_some_and(suits);
        is_suitable && (!ask.excluded.contains(&id) || !self.suitable(ask).any(|(other, _)| !ask.excluded.contains(&other)))
    }

    fn serve_all(&mut self) -> Vec<Grant> {
        if self.lanes.is_empty() {
            return Vec::new();
        }
        let open: Vec<_> = self.members.iter().filter(|(_, member)| member.has_place(true)).map(|(id, _)| *id).collect();
        open.into_iter().flat_map(|id| self.serve(id)).collect()
    }

    /// Updates the target of tasks that wait for one worker, after a worker joined, left or changed.
    fn redirect(&mut self) {
        let bound: Vec<LaneKey> = self.lanes.keys().filter(|key| key.bound).cloned().collect();
        for key in bound {
            for (place, ask) in self.lanes.remove(&key).unwrap_or_default() {
                let key = LaneKey { target: self.target(&ask).or(ask.only), ..key.clone() };
                self.waiting.insert(ask.asker, (key.clone(), place));
                self.lanes.entry(key).or_default().insert(place, ask);
            }
        }
    }
}

#[cfg(test)]
mod tests;
