//! Which worker gets a task, or a run of a block job.
//!
//! A task uses a slot of its worker. Tasks with the same requirements for a worker wait in one queue, ordered by priority and then by
//! arrival. A slot that becomes free goes to the first task of all queues that its worker may serve. A run of a block job uses no slot,
//! so it waits only if no connected worker suits it.

mod request;

pub use request::{Grant, Obstacle, RequestOutcome, Requester, WorkerCapacity, WorkerObstacle, WorkerRequest};

use super::ids::WorkerId;
use super::task::{Strategy, TaskSettings};
use super::worker::NotEligible;
use request::Member;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Number of keys of the strategy `sticky` at which those that no task waits with are forgotten.
const MOST_KEYS: usize = if cfg!(test) { 3 } else { 100_000 };

/// The common properties of the tasks in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct QueueKey {
    handler: Arc<str>,
    group: Option<String>,
    version: Option<String>,
    tags: Vec<String>,
    /// Their strategy names one worker, which may change when a worker joins or leaves.
    is_bound: bool,
    /// They wait for exactly this worker.
    target: Option<WorkerId>,
}

type Position = (Reverse<i32>, u64);

/// The handler, the hash of the key, and whether it is a task (`true`) or a run of a block job.
type StickyKey = (Arc<str>, u64, bool);

fn sticky_key(request: &WorkerRequest) -> StickyKey {
    (Arc::clone(&request.handler), request.key, request.needs_slot)
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct WorkerPool {
    members: BTreeMap<WorkerId, Member>,
    queues: BTreeMap<QueueKey, BTreeMap<Position, WorkerRequest>>,
    /// The queue and position of each waiting instance.
    waiting: HashMap<Requester, (QueueKey, Position)>,
    /// The waiting instances of the strategy `sticky`, by key.
    waiting_by_key: HashMap<StickyKey, BTreeSet<Requester>>,
    /// The worker that last got a task of this handler, for `roundRobin`.
    last: HashMap<Arc<str>, WorkerId>,
    /// The worker that last had this key, for the strategy `sticky`.
    sticky: HashMap<StickyKey, WorkerId>,
    sequence: u64,
}

fn rendezvous_weight(key: u64, worker: WorkerId) -> u64 {
    // Compared only within one process.
    let mut hasher = std::hash::DefaultHasher::new();
    (key, worker).hash(&mut hasher);
    hasher.finish()
}

impl WorkerPool {
    /// A worker joins or changes its properties; its current tasks stay counted. `disabled`: why an operator disabled new work for it, if
    /// so; a later call would be too late, because it could get work before.
    pub fn join(&mut self, id: WorkerId, capacity: WorkerCapacity, is_reachable: bool, disabled: Option<String>) -> Vec<Grant> {
        if self.members.get(&id).is_some_and(|member| member.capacity == capacity && member.disabled == disabled) {
            // It connected again.
            return self.set_reachable(id, is_reachable);
        }
        let handlers = [&self.watched_by(id)[..], &capacity.handlers].concat();
        self.sequence += 1;
        let incarnation = self.sequence;
        let is_new = !self.members.contains_key(&id);
        let member = self.members.entry(id).or_insert_with(|| Member {
            capacity: WorkerCapacity::default(),
            is_reachable,
            disabled: None,
            used_slots: 0,
            incarnation,
            last_used: 0,
        });
        (member.capacity, member.is_reachable, member.disabled) = (capacity, is_reachable, disabled);
        self.update_targets_of(&handlers);
        // A new worker can only offer its own slots, unless tasks wait for certain workers.
        if is_new && !self.queues.keys().any(|key| key.is_bound) { self.serve(id) } else { self.serve_all() }
    }

    /// Sets whether it is reachable.
    pub fn set_reachable(&mut self, id: WorkerId, is_reachable: bool) -> Vec<Grant> {
        match self.members.get_mut(&id) {
            Some(member) if member.is_reachable != is_reachable => member.is_reachable = is_reachable,
            _ => return Vec::new(),
        }
        // Reachability does not change which worker is suitable: only its own slots can be granted.
        self.serve(id)
    }

    /// Disables or enables new work by order of an operator. `disabled`: why, if it is disabled.
    pub fn set_disabled(&mut self, id: WorkerId, disabled: Option<String>) -> Vec<Grant> {
        match self.members.get_mut(&id) {
            Some(member) if member.disabled != disabled => member.disabled = disabled,
            _ => return Vec::new(),
        }
        self.update_targets_of(&self.watched_by(id));
        self.serve_all()
    }

    /// A worker leaves. Returns the slots that others get now, and the instances that waited for exactly this worker.
    pub fn leave(&mut self, id: WorkerId) -> (Vec<Grant>, Vec<Requester>) {
        let handlers = self.watched_by(id);
        self.members.remove(&id);
        self.update_targets_of(&handlers);
        let without_target = self.queues.iter().filter(|(key, _)| key.target == Some(id)).flat_map(|(_, queue)| queue.values());
        let without_target = without_target.filter(|request| request.only == Some(id)).map(|request| request.requester).collect();
        // Other slots become usable only for tasks bound to certain workers, or tasks that avoided other workers while this one was there.
        let concerns_others =
            self.queues.iter().any(|(key, queue)| key.is_bound || queue.values().any(|request| !request.excluded.is_empty()));
        (if concerns_others { self.serve_all() } else { Vec::new() }, without_target)
    }

    /// A worker has a task without a grant: it got the task before this worker pool existed.
    pub fn occupy(&mut self, id: WorkerId) -> Option<u64> {
        let member = self.members.get_mut(&id)?;
        member.used_slots += 1;
        Some(member.incarnation)
    }

    /// Releases a slot.
    pub fn release(&mut self, id: WorkerId, incarnation: u64) -> Vec<Grant> {
        match self.members.get_mut(&id) {
            Some(member) if member.incarnation == incarnation => member.used_slots = member.used_slots.saturating_sub(1),
            _ => return Vec::new(),
        }
        self.serve(id)
    }

    /// Requests a worker for a task. Without a grant the task waits from now on.
    pub fn request(&mut self, request: WorkerRequest) -> RequestOutcome {
        self.withdraw(request.requester);
        // No waiting task can use a free slot: they were checked when the slot became free.
        let target = self.target(&request).or(request.only);
        if let Some(worker) = self.choose(&request, target, |_, member| member.used_slots) {
            let (grant, frees_others) = self.grant(&request, worker);
            let moved = if frees_others { self.serve_all() } else { Vec::new() };
            return RequestOutcome::Granted { grant, moved };
        }
        let outcome = if self.suitable(&request).next().is_some() {
            RequestOutcome::Waits
        } else {
            RequestOutcome::NoWorker(self.not_eligible(&request.handler))
        };
        self.sequence += 1;
        self.enqueue((Reverse(request.priority), self.sequence), request);
        outcome
    }

    /// Withdraws a request.
    pub fn withdraw(&mut self, requester: Requester) {
        self.dequeue(requester);
    }

    fn enqueue(&mut self, position: Position, request: WorkerRequest) {
        let settings = &request.settings;
        let key = QueueKey {
            handler: Arc::clone(&request.handler),
            group: settings.group.clone(),
            version: settings.version.clone(),
            tags: settings.tags.clone(),
            is_bound: matches!(settings.strategy, Strategy::Hash | Strategy::Failover | Strategy::Sticky),
            target: self.target(&request).or(request.only),
        };
        if settings.strategy == Strategy::Sticky {
            self.waiting_by_key.entry(sticky_key(&request)).or_default().insert(request.requester);
        }
        self.waiting.insert(request.requester, (key.clone(), position));
        self.queues.entry(key).or_default().insert(position, request);
    }

    fn dequeue(&mut self, requester: Requester) -> Option<(Position, WorkerRequest)> {
        let (key, position) = self.waiting.remove(&requester)?;
        let queue = self.queues.get_mut(&key)?;
        let request = queue.remove(&position)?;
        if queue.is_empty() {
            self.queues.remove(&key);
        }
        if request.settings.strategy == Strategy::Sticky
            && let Entry::Occupied(mut same_key) = self.waiting_by_key.entry(sticky_key(&request))
        {
            same_key.get_mut().remove(&requester);
            if same_key.get().is_empty() {
                same_key.remove();
            }
        }
        Some((position, request))
    }

    /// All workers that are suitable for a handler, by name: those of a broadcast. At least one.
    ///
    /// # Errors
    /// There is none; the value is the reason.
    pub fn all(&self, handler: &str, settings: &TaskSettings) -> Result<Vec<WorkerId>, NotEligible> {
        let mut all: Vec<_> = self.members.iter().filter(|(_, member)| member.suits(handler, settings, true)).collect();
        all.sort_by(|a, b| (&a.1.capacity.name, a.0).cmp(&(&b.1.capacity.name, b.0)));
        if all.is_empty() { Err(self.not_eligible(handler)) } else { Ok(all.into_iter().map(|(id, _)| *id).collect()) }
    }

    /// Why no connected worker is eligible for work of this handler, if that is so.
    #[must_use]
    pub fn not_eligible(&self, handler: &str) -> NotEligible {
        let watching = || self.members.iter().filter(|(_, member)| member.watches(handler));
        if watching().next().is_none() {
            NotEligible::Unwatched
        } else if watching().all(|(_, member)| member.disabled.is_some()) {
            NotEligible::Disabled(watching().map(|(id, member)| (*id, member.capacity.name.clone())).collect())
        } else {
            NotEligible::Unsuitable
        }
    }

    /// The connected workers, by name, and for each the first reason why it does not get the waiting task.
    #[must_use]
    pub fn explain(&self, request: &WorkerRequest) -> Vec<WorkerObstacle> {
        let mut all: Vec<WorkerObstacle> = self
            .members
            .iter()
            .map(|(id, member)| WorkerObstacle { worker: *id, name: member.capacity.name.clone(), why: member.obstacle(*id, request) })
            .collect();
        all.sort_by(|a, b| (&a.name, a.worker).cmp(&(&b.name, b.worker)));
        all
    }

    fn suitable<'a>(&'a self, request: &'a WorkerRequest) -> impl Iterator<Item = (WorkerId, &'a Member)> {
        let is_meant = move |id: &WorkerId| request.only.is_none_or(|only| only == *id);
        let suits = move |member: &Member| member.suits(&request.handler, &request.settings, request.needs_slot);
        self.members.iter().filter(move |(id, member)| is_meant(id) && suits(member)).map(|(id, member)| (*id, member))
    }

    /// The worker that the task waits for even if it has no free slot.
    fn target(&self, request: &WorkerRequest) -> Option<WorkerId> {
        let not_excluded = |id: &WorkerId| !request.excluded.contains(id);
        // Use those that did not complete it only if there is no other.
        let has_other = self.suitable(request).any(|(id, _)| not_excluded(&id));
        let all = self.suitable(request).filter(|(id, _)| !has_other || not_excluded(id));
        match request.settings.strategy {
            Strategy::Hash => all.max_by_key(|(id, _)| (rendezvous_weight(request.key, *id), *id)).map(|(id, _)| id),
            Strategy::Failover => all.min_by(|a, b| (&a.1.capacity.name, a.0).cmp(&(&b.1.capacity.name, b.0))).map(|(id, _)| id),
            Strategy::Sticky => {
                let id = *self.sticky.get(&sticky_key(request))?;
                self.suitable(request).any(|(other, _)| other == id && not_excluded(&id)).then_some(id)
            }
            _ => None,
        }
    }

    /// A worker with a free slot, chosen by the strategy.
    fn choose(&self, request: &WorkerRequest, target: Option<WorkerId>, load: impl Fn(WorkerId, &Member) -> u32) -> Option<WorkerId> {
        let has_other = !request.excluded.is_empty() && self.suitable(request).any(|(id, _)| !request.excluded.contains(&id));
        let may = |id: WorkerId| !(has_other && request.excluded.contains(&id));
        let free = || {
            self.suitable(request)
                .filter(move |(id, member)| member.has_slot(request.needs_slot) && may(*id) && target.is_none_or(|target| target == *id))
        };
        match request.settings.strategy {
            Strategy::RoundRobin => {
                let last = self.last.get(&request.handler);
                free().find(|(id, _)| last.is_none_or(|last| id > last)).or_else(|| free().next()).map(|(id, _)| id)
            }
            Strategy::Random => {
                let count = free().count() as u64;
                free().nth((request.chance.checked_rem(count)?) as usize).map(|(id, _)| id)
            }
            Strategy::LeastLoaded | Strategy::Shard => free()
                // Compares load/slots without a division.
                .map(|(id, member)| (id, u64::from(load(id, member)), u64::from(member.capacity.slots.max(1)), member.last_used))
                .min_by(|(_, load_a, slots_a, last_a), (_, load_b, slots_b, last_b)| {
                    (load_a * slots_b, last_a).cmp(&(load_b * slots_a, last_b))
                })
                .map(|(id, ..)| id),
            _ => free().min_by_key(|(id, member)| (member.last_used, *id)).map(|(id, _)| id),
        }
    }

    /// A worker for a run of a block job; it takes no slot. `load`: the number of tasks and runs that a worker has now.
    ///
    /// # Errors
    /// No worker is eligible; the value is the reason.
    pub fn find(&mut self, request: &WorkerRequest, load: impl Fn(WorkerId) -> u32) -> Result<WorkerId, NotEligible> {
        let target = self.target(request);
        match self.choose(request, target, |id, _| load(id)) {
            Some(worker) => {
                self.remember_choice(request, worker);
                Ok(worker)
            }
            None => Err(self.not_eligible(&request.handler)),
        }
    }

    /// Whether this worker may get such work.
    #[must_use]
    pub fn suits(&self, id: WorkerId, request: &WorkerRequest) -> bool {
        self.members.get(&id).is_some_and(|member| member.suits(&request.handler, &request.settings, request.needs_slot))
    }

    /// The names that a worker watches.
    #[must_use]
    pub fn watched_by(&self, id: WorkerId) -> Vec<String> {
        self.members.get(&id).map(|member| member.capacity.handlers.clone()).unwrap_or_default()
    }

    /// The grant, and whether tasks that wait may have other free slots now.
    fn grant(&mut self, request: &WorkerRequest, worker: WorkerId) -> (Grant, bool) {
        let frees_others = self.remember_choice(request, worker);
        let member = self.members.get_mut(&worker).expect("it was chosen among the members");
        member.used_slots += 1;
        (Grant { requester: request.requester, worker, incarnation: member.incarnation }, frees_others)
    }

    /// Remembers a choice, for the strategies that depend on earlier ones. Returns whether tasks of the strategy `sticky` that wait for
    /// another worker no longer do so.
    fn remember_choice(&mut self, request: &WorkerRequest, worker: WorkerId) -> bool {
        self.sequence += 1;
        let frees_others = request.settings.strategy == Strategy::Sticky && self.remember_key(sticky_key(request), worker);
        match self.last.get_mut(&request.handler) {
            Some(last) => *last = worker,
            None => drop(self.last.insert(Arc::clone(&request.handler), worker)),
        }
        if let Some(member) = self.members.get_mut(&worker) {
            member.last_used = self.sequence;
        }
        frees_others
    }

    /// See [`WorkerPool::remember_choice`].
    fn remember_key(&mut self, key: StickyKey, worker: WorkerId) -> bool {
        if self.sticky.len() >= MOST_KEYS + self.waiting_by_key.len() {
            // The worker of a key that tasks wait with does not change by this.
            self.sticky.retain(|key, _| self.waiting_by_key.contains_key(key));
        }
        let same_key: Vec<Requester> = self.waiting_by_key.get(&key).into_iter().flatten().copied().collect();
        let before = self.sticky.insert(key, worker);
        if before == Some(worker) || same_key.is_empty() {
            return false;
        }
        self.update_targets(same_key);
        before.is_some()
    }

    /// Grants the slots of one worker to the tasks that waited longest, and then those of others that this has made usable.
    fn serve(&mut self, id: WorkerId) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut frees_others = false;
        while self.members.get(&id).is_some_and(|member| member.has_slot(true)) {
            let member = &self.members[&id];
            let first = self
                .queues
                .iter()
                .filter(|(key, _)| key.target.is_none_or(|target| target == id) && member.watches(&key.handler))
                .filter_map(|(_, queue)| queue.iter().find(|(_, request)| self.may_have_slot_of(request, id)))
                .min_by_key(|(position, _)| **position);
            let Some(requester) = first.map(|(_, request)| request.requester) else { break };
            let (_, request) = self.dequeue(requester).expect("it was found there");
            let (grant, frees) = self.grant(&request, id);
            grants.push(grant);
            frees_others |= frees;
        }
        if frees_others {
            grants.extend(self.serve_all());
        }
        grants
    }

    /// Whether a waiting task may have a slot of this worker.
    fn may_have_slot_of(&self, request: &WorkerRequest, id: WorkerId) -> bool {
        let suits = |member: &Member| member.suits(&request.handler, &request.settings, request.needs_slot);
        let is_suitable = request.only.is_none_or(|only| only == id) && self.members.get(&id).is_some_and(suits);
        is_suitable && (!request.excluded.contains(&id) || !self.suitable(request).any(|(other, _)| !request.excluded.contains(&other)))
    }

    fn serve_all(&mut self) -> Vec<Grant> {
        if self.queues.is_empty() {
            return Vec::new();
        }
        let free: Vec<_> = self.members.iter().filter(|(_, member)| member.has_slot(true)).map(|(id, _)| *id).collect();
        free.into_iter().flat_map(|id| self.serve(id)).collect()
    }

    /// Updates the target of the tasks of these handlers whose strategy binds them to one worker, after a worker that watches them joined, left or changed.
    fn update_targets_of(&mut self, handlers: &[String]) {
        let is_concerned = |key: &QueueKey| key.is_bound && handlers.iter().any(|handler| **handler == *key.handler);
        let bound = self.queues.iter().filter(|(key, _)| is_concerned(key)).flat_map(|(_, queue)| queue.values());
        let bound = bound.map(|request| request.requester).collect();
        self.update_targets(bound);
    }

    fn update_targets(&mut self, of: Vec<Requester>) {
        for requester in of {
            if let Some((position, request)) = self.dequeue(requester) {
                self.enqueue(position, request);
            }
        }
    }
}

#[cfg(test)]
mod tests;
