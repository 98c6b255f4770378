//! Explains the state of a run, and why it has not advanced further.

use super::ids::{Identity, WorkerId};
use super::job::JobKind;
use super::run::{BROKER, Run, RunState};
use super::schedule::Answer;
use super::time::Timestamp;
use super::worker::ENABLE;
use super::worker_pool::{Obstacle, WorkerObstacle};

/// The inputs for the explanation of a run.
#[derive(Debug)]
pub struct RunView<'a> {
    /// The run, with its current counters.
    pub run: &'a Run,
    /// The unfinished runs of its job that were created before it, the oldest first.
    pub ahead: &'a [Identity],
    /// The worker that runs it.
    pub worker: Option<WorkerId>,
    /// The classes that workers watch now.
    pub watched: &'a [String],
    /// Its instances, for a task or an application; empty if they are not known.
    pub instances: &'a [Instance],
    /// The connected workers, and why none of them gets the first instance that waits for a worker.
    pub obstacles: &'a [WorkerObstacle],
    /// The current time.
    pub now: Timestamp,
}

/// An instance of a run, or its only one.
#[derive(Debug, Clone)]
pub struct Instance {
    /// The number of its attempt, from 1.
    pub attempt: u32,
    /// Its state.
    pub state: InstanceState,
    /// Progress in percent.
    pub progress: Option<u8>,
    /// The progress text that it reported.
    pub text: Option<String>,
    /// The reason for its state.
    pub reason: Option<String>,
}

/// State of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceState {
    /// Its next attempt waits until this time.
    Pausing(Timestamp),
    /// It waits for a worker.
    Requesting,
    /// It was dispatched there and not yet answered.
    Dispatched(String),
    /// It runs there, since this time if known.
    At(String, Option<Timestamp>),
    /// A worker may have it: until a worker reports it, or until this time.
    Unclear(Timestamp),
    /// It was ordered to end there.
    Ending(String),
    /// It is over.
    Over(RunState),
}

/// Maximum number of instances or workers that are listed by name.
const MOST_NAMED: usize = 20;

/// Explains the state of a run.
#[must_use]
pub fn explain_run(around: &RunView<'_>) -> Answer {
    let mut answer = match around.run.state {
        RunState::Pending => pending(around),
        RunState::Scheduled => scheduled(around),
        RunState::Running => running(around),
        RunState::Failed | RunState::Success | RunState::Stopped => over(around.run),
    };
    answer.because.insert(0, origin(around.run));
    if let Some(at) = around.run.paused_at() {
        if around.run.state == RunState::Running {
            answer = Answer::new("paused", "paused", answer.because);
        }
        answer.because.insert(1, format!("It is paused since {at}: it dispatches no blocks until it is resumed."));
    }
    answer
}

fn origin(run: &Run) -> String {
    let by = run.rules.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let again = run.retry_of.map(|other| format!(", to repeat run {other}")).unwrap_or_default();
    match (run.planned_at, run.rules.after) {
        (Some(planned), _) => {
            format!("It was created at {} for the scheduled time {planned}{by}{again}.", run.creation_time)
        }
        (None, Some(after)) => format!("It was created at {} by a workflow, when run {after} ended{again}.", run.creation_time),
        (None, None) if run.rules.by.as_deref() == Some(BROKER) => {
            format!("It was created at {} by the broker, for a run that has no worker{again}.", run.creation_time)
        }
        (None, None) => format!("It was created at {} by hand{by}{again}.", run.creation_time),
    }
}

fn pending(around: &RunView<'_>) -> Answer {
    let run = around.run;
    if run.queued {
        let text = match around.ahead {
            [] => "It is queued, and no other run of the job is ahead of it: it is about to begin.".to_owned(),
            [one] => format!("It is queued behind run {one}."),
            [first, rest @ ..] => format!("It is queued behind run {first} and {} more.", rest.len()),
        };
        return Answer::new("waiting", "queued", vec![text]);
    }
    if let Some(at) = run.not_before.filter(|at| *at > around.now) {
        if run.is_ahead() {
            return Answer::new("waiting", "planned", vec![format!("It begins at {at}, its scheduled time.")]);
        }
        let why = run.reason.as_deref().map_or_else(|| format!("attempt {} failed", run.attempt.saturating_sub(1)), str::to_owned);
        let text = format!("It waits until {at} for attempt {}, because {why}.", run.attempt);
        return Answer::new("waiting", "retry", vec![text]);
    }
    if !around.instances.is_empty() {
        return instances(around);
    }
    match run.kind {
        JobKind::Block => {
            no_worker(around).unwrap_or_else(|| Answer::new("waiting", "starting", vec!["A worker for it is being chosen.".to_owned()]))
        }
        JobKind::Application | JobKind::Callback | JobKind::Task => match run.reason.as_deref().filter(|why| !why.is_empty()) {
            Some(why) => Answer::new("waiting", "reason", vec![format!("Its reason: {why}.")]),
            None => Answer::new("waiting", "starting", vec!["It is about to begin.".to_owned()]),
        },
    }
}

/// Explains where the instances of a task or an application are.
fn instances(around: &RunView<'_>) -> Answer {
    let instances = around.instances;
    let mut because = Vec::new();
    if instances.len() > 1 {
        let count = |is: fn(&InstanceState) -> bool| instances.iter().filter(|instance| is(&instance.state)).count();
        because.push(format!(
            "Of {} instances {} are over, {} are at work, {} wait.",
            instances.len(),
            count(|state| matches!(state, InstanceState::Over(_))),
            count(|state| matches!(state, InstanceState::At(..) | InstanceState::Dispatched(_) | InstanceState::Ending(_))),
            count(|state| matches!(state, InstanceState::Requesting | InstanceState::Pausing(_) | InstanceState::Unclear(_))),
        ));
    }
    let open = instances.iter().enumerate().filter(|(_, instance)| !matches!(instance.state, InstanceState::Over(_)));
    let mut named = 0;
    for (nth, instance) in open.clone().take(MOST_NAMED) {
        let who = if instances.len() > 1 { format!("Instance {nth}") } else { "It".to_owned() };
        because.push(sentence(&who, instance, around.now));
        named += 1;
    }
    let rest = open.count() - named;
    if rest > 0 {
        because.push(format!("{rest} more are not listed."));
    }
    let requests = instances.iter().any(|instance| instance.state == InstanceState::Requesting);
    if requests {
        because.extend(obstacles(around));
    }
    let suits = around.obstacles.iter().any(|worker| matches!(worker.why, Obstacle::Busy(_)));
    let has = |is: fn(&InstanceState) -> bool| instances.iter().any(|instance| is(&instance.state));
    let (verdict, rule) = match around.run.state {
        _ if has(|state| matches!(state, InstanceState::At(..) | InstanceState::Ending(_))) => match around.run.state {
            RunState::Running => ("running", "running"),
            _ => ("scheduled", "startTold"),
        },
        _ if has(|state| matches!(state, InstanceState::Dispatched(_))) => ("scheduled", "startTold"),
        _ if requests && suits => ("waiting", "workersFull"),
        _ if requests => ("waiting", "noWorker"),
        _ if has(|state| matches!(state, InstanceState::Unclear(_))) => ("waiting", "lease"),
        _ if has(|state| matches!(state, InstanceState::Pausing(_))) => ("waiting", "retry"),
        _ => ("running", "ending"),
    };
    Answer::new(verdict, rule, because)
}

/// One sentence about an instance.
fn sentence(who: &str, instance: &Instance, now: Timestamp) -> String {
    let attempt = instance.attempt;
    let why = instance.reason.as_deref().filter(|why| !why.is_empty()).map(|why| format!(", because {why}")).unwrap_or_default();
    match &instance.state {
        InstanceState::Pausing(at) => format!("{who} waits until {at} for attempt {attempt}{why}."),
        InstanceState::Requesting => format!("{who} waits for a worker, attempt {attempt}{why}."),
        InstanceState::Dispatched(peer) => format!("{who} was dispatched to {peer}, attempt {attempt}, and has not been confirmed yet."),
        InstanceState::At(peer, since) => {
            let since = since.map(|at| format!(" since {at} ({} ms)", now.since_ms(at).max(0))).unwrap_or_default();
            let progress = match (instance.progress, instance.text.as_deref()) {
                (Some(percent), Some(text)) => format!("; progress {percent} %: {}", text.trim_end_matches('.')),
                (Some(percent), None) => format!("; progress {percent} %"),
                (None, Some(text)) => format!("; progress: {}", text.trim_end_matches('.')),
                (None, None) => String::new(),
            };
            format!("{who} is at {peer}{since}, attempt {attempt}{progress}.")
        }
        InstanceState::Unclear(until) => {
            format!(
                "{who} may be at a worker, attempt {attempt}{why}: if none reports it by {until}, when its lease ends, another one gets it."
            )
        }
        InstanceState::Ending(peer) => format!("{who} was asked to end at {peer}, attempt {attempt}, and has not ended yet."),
        InstanceState::Over(state) => format!("{who} is over: {}.", state.name()),
    }
}

/// Explains why no worker has it.
fn obstacles(around: &RunView<'_>) -> Vec<String> {
    let handler = &around.run.class_name;
    if around.obstacles.is_empty() {
        return vec![format!("A worker that watches {handler} is needed, and no worker is connected.")];
    }
    let mut out = vec![format!("A worker that watches {handler} is needed, and {} are connected.", around.obstacles.len())];
    // List workers that watch the class first: there may be many others.
    let is_far = |obstacle: &&WorkerObstacle| matches!(&obstacle.why, Obstacle::Unsuitable(why) if why.starts_with("it does not watch"));
    let (far, near): (Vec<_>, Vec<_>) = around.obstacles.iter().partition(is_far);
    for obstacle in near.iter().chain(&far).take(MOST_NAMED) {
        let (Obstacle::Unsuitable(why) | Obstacle::Disabled(why) | Obstacle::Busy(why)) = &obstacle.why;
        let name = if obstacle.name.is_empty() { String::new() } else { format!(" ({})", obstacle.name) };
        out.push(format!("Worker {}{name}: {why}.", obstacle.worker));
    }
    if let Some(rest) = around.obstacles.len().checked_sub(MOST_NAMED).filter(|rest| *rest > 0) {
        out.push(format!("{rest} more are not listed."));
    }
    if around.obstacles.iter().any(|obstacle| matches!(obstacle.why, Obstacle::Disabled(_))) {
        out.push(format!("`{ENABLE}` gives a disabled worker new work again."));
    }
    out
}

/// An answer if no connected worker can run it.
fn no_worker(around: &RunView<'_>) -> Option<Answer> {
    let class = &around.run.class_name;
    let is_eligible = |obstacle: &WorkerObstacle| matches!(obstacle.why, Obstacle::Busy(_));
    let is_choosing = around.obstacles.is_empty() || around.obstacles.iter().any(is_eligible);
    if around.worker.is_some() || around.watched.contains(class) && is_choosing {
        return None;
    }
    let reason = around.run.reason.as_deref().filter(|why| !why.is_empty()).map(|why| format!("Its reason: {why}."));
    if around.watched.contains(class) {
        let mut because = obstacles(around);
        because.extend(reason);
        return Some(Answer::new("waiting", "noWorker", because));
    }
    let watched = match around.watched {
        [] => "No worker watches any class now.".to_owned(),
        names => {
            let shown = names.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = names.len().checked_sub(20).filter(|more| *more > 0).map(|more| format!(" and {more} more")).unwrap_or_default();
            format!("Watched now: {shown}{more}.")
        }
    };
    let because = [format!("No worker watches the class {class}."), watched].into_iter().chain(reason);
    Some(Answer::new("waiting", "noWorker", because.collect()))
}

fn scheduled(around: &RunView<'_>) -> Answer {
    if !around.instances.is_empty() {
        return instances(around);
    }
    match (around.worker, no_worker(around)) {
        (Some(worker), _) => {
            let text = format!("Worker {worker} was ordered to start it, and has not reported yet that its first requests are pushed.");
            Answer::new("scheduled", "startTold", vec![text])
        }
        (None, Some(answer)) if around.run.kind == JobKind::Block => answer,
        (None, _) => Answer::new("scheduled", "starting", vec!["Its start was ordered, but it is not running yet.".to_owned()]),
    }
}

fn running(around: &RunView<'_>) -> Answer {
    let run = around.run;
    if !around.instances.is_empty() {
        let mut answer = instances(around);
        let since = run.start_time.map(|at| format!("It began at {at}."));
        since.into_iter().for_each(|text| answer.because.insert(0, text));
        return answer;
    }
    let since = run.start_time.map(|at| format!(" since {at}")).unwrap_or_default();
    let mut because = vec![format!("It is running{since}, attempt {}.", run.attempt)];
    if run.kind == JobKind::Block {
        let c = run.counters;
        because.push(format!("Of {} requests {} are left, {} succeeded, {} failed.", c.total, c.left, c.success, c.error));
        match around.worker {
            Some(worker) => because.push(format!("Worker {worker} runs it.")),
            None => because.extend(no_worker(around).map_or(vec!["A worker for it is being chosen.".to_owned()], |answer| answer.because)),
        }
    }
    if run.kind == JobKind::Callback {
        because.push("Its request is under way, and no response has arrived yet.".to_owned());
    }
    Answer::new("running", "running", because)
}

fn over(run: &Run) -> Answer {
    let at = run.finish_time.map(|at| format!(" at {at}")).unwrap_or_default();
    let (rule, how) = match run.state {
        RunState::Success => ("success", "It succeeded"),
        RunState::Stopped => ("stopped", "It was stopped"),
        _ => ("failed", "It failed"),
    };
    let attempts = if run.attempt > 1 { format!(" in attempt {}", run.attempt) } else { String::new() };
    let why = run.reason.as_deref().filter(|why| !why.is_empty()).map(|why| format!(": {why}")).unwrap_or_default();
    Answer::new("over", rule, vec![format!("{how}{at}{attempts}{why}.")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run::{Counters, RunRules};

    fn run(state: RunState) -> Run {
        Run { job_name: "j".into(), class_name: "a.B".into(), state, ..Run::sample(JobKind::Block, Timestamp(0)) }
    }

    fn rule(run: &Run, ahead: &[Identity], worker: Option<WorkerId>, watched: &[&str]) -> (String, String) {
        let watched: Vec<String> = watched.iter().map(|name| (*name).to_owned()).collect();
        let (instances, obstacles) = (&[], &[]);
        let answer = explain_run(&RunView { run, ahead, worker, watched: &watched, instances, obstacles, now: Timestamp(1_000) });
        assert!(answer.because.len() > 1 && answer.because.iter().all(|text| text.ends_with('.')), "{answer:?}");
        (answer.rule, answer.because.join(" "))
    }

    fn instance(state: InstanceState) -> Instance {
        Instance { attempt: 2, state, progress: None, text: None, reason: None }
    }

    fn of_task(state: RunState, instances: &[Instance], obstacles: &[WorkerObstacle]) -> (String, String, String) {
        let task = Run { kind: JobKind::Task, class_name: "sum".into(), ..run(state) };
        let around = RunView { run: &task, ahead: &[], worker: None, watched: &[], instances, obstacles, now: Timestamp(9_000) };
        let answer = explain_run(&around);
        assert!(answer.because.len() > 1 && answer.because.iter().all(|text| text.ends_with('.')), "{answer:?}");
        (answer.verdict, answer.rule, answer.because.join(" "))
    }

    #[test]
    fn a_block_run_says_why_no_worker_has_it() {
        let waits = Run { reason: Some("run 7 of the job `starter` is to start one".into()), ..run(RunState::Pending) };
        let (of_rule, text) = rule(&waits, &[], None, &["a.C"]);
        assert!(of_rule == "noWorker" && text.contains("Watched now: a.C. Its reason: run 7 of the job `starter`"), "{text}");
        // An operator is draining the worker that watches it.
        let why = Obstacle::Disabled("an operator has it draining: a new version".into());
        let obstacles = [WorkerObstacle { worker: WorkerId::random(), name: "w".into(), why }];
        let watched = ["a.B".to_owned()];
        let answer = |run: &Run, obstacles: &[WorkerObstacle]| {
            let answer =
                explain_run(&RunView { run, ahead: &[], worker: None, watched: &watched, instances: &[], obstacles, now: Timestamp(1) });
            (answer.rule, answer.because.join(" "))
        };
        let (of_rule, text) = answer(&run(RunState::Pending), &obstacles);
        assert!(
            of_rule == "noWorker" && text.contains("(w): an operator has it draining: a new version. `webloom worker enable WORKER` gives"),
            "{text}"
        );
        assert_eq!(answer(&run(RunState::Pending), &[]).0, "starting");
        let (_, text) = answer(&run(RunState::Running), &obstacles);
        assert!(text.contains("(w): an operator has it draining"), "{text}");
    }

    #[test]
    fn a_run_says_who_made_it_and_a_callback_what_it_waits_for() {
        let by = |by: &str| RunRules { by: Some(by.to_owned()), ..RunRules::default() };
        assert!(
            rule(&Run { rules: by(BROKER), ..run(RunState::Success) }, &[], None, &[]).1.contains("by the broker, for a run that has no")
        );
        assert!(rule(&Run { rules: by("admin"), ..run(RunState::Success) }, &[], None, &[]).1.contains("by hand by admin"));
        let callback = Run { kind: JobKind::Callback, ..run(RunState::Running) };
        assert!(rule(&callback, &[], None, &[]).1.contains("Its request is under way"));
    }

    #[test]
    fn a_task_says_where_it_is_and_how_far() {
        let worker = || "worker w1".to_owned();
        let at =
            Instance { progress: Some(76), text: Some("step 76".into()), ..instance(InstanceState::At(worker(), Some(Timestamp(4_000)))) };
        let (verdict, rule, text) = of_task(RunState::Running, std::slice::from_ref(&at), &[]);
        assert_eq!((verdict.as_str(), rule.as_str()), ("running", "running"));
        assert!(text.contains("at worker w1 since 1970-01-01T00:00:04.000Z (5000 ms), attempt 2; progress 76 %: step 76."), "{text}");
        let (verdict, rule, _) = of_task(RunState::Scheduled, &[instance(InstanceState::At(worker(), None))], &[]);
        assert_eq!((verdict.as_str(), rule.as_str()), ("scheduled", "startTold"));
        let (verdict, rule, text) = of_task(RunState::Pending, &[instance(InstanceState::Unclear(Timestamp(10_000)))], &[]);
        assert_eq!((verdict.as_str(), rule.as_str()), ("waiting", "lease"));
        assert!(text.contains("by 1970-01-01T00:00:10.000Z, when its lease ends"), "{text}");
        let several = [at, instance(InstanceState::Requesting), instance(InstanceState::Over(RunState::Success))];
        let text = of_task(RunState::Running, &several, &[]).2;
        assert!(text.contains("Of 3 instances 1 are over, 1 are at work, 1 wait. Instance 0 is at worker w1"), "{text}");
        assert_eq!(of_task(RunState::Running, &[instance(InstanceState::Ending(worker()))], &[]).1, "running");
    }

    #[test]
    fn a_task_without_a_worker_says_who_refused_it_and_why() {
        let worker = |name: &str, why| WorkerObstacle { worker: WorkerId::random(), name: name.into(), why };
        let instances = [instance(InstanceState::Requesting)];
        let (verdict, rule, text) = of_task(RunState::Pending, &instances, &[]);
        assert_eq!((verdict.as_str(), rule.as_str()), ("waiting", "noWorker"));
        assert!(text.contains("watches sum is needed, and no worker is connected"), "{text}");
        let mut all = vec![worker("a", Obstacle::Unsuitable("it does not watch sum".into()))];
        assert_eq!(of_task(RunState::Pending, &instances, &all).1, "noWorker");
        all.push(worker("b", Obstacle::Busy("it is full: 4 of 4 slots are used".into())));
        let (_, rule, text) = of_task(RunState::Pending, &instances, &all);
        assert_eq!(rule, "workersFull");
        let (near, far) = (text.find("(b): it is full").expect("b"), text.find("(a): it does not watch").expect("a"));
        assert!(near < far, "{text}");
    }

    #[test]
    fn a_run_that_a_workflow_began_says_so() {
        let after = Identity::random();
        let rules = RunRules { after: Some(after), by: Some("workflow".into()), ..RunRules::default() };
        let text = rule(&Run { rules, ..run(RunState::Pending) }, &[], None, &[]).1;
        assert!(text.contains(&format!("by a workflow, when run {after} ended.")) && !text.contains("by hand"), "{text}");
    }

    #[test]
    fn each_state_is_explained() {
        use RunState::{Failed, Pending, Running, Scheduled, Stopped, Success};
        let other = Identity::random();
        let queued = Run { queued: true, ..run(Pending) };
        assert!(rule(&queued, &[other], None, &[]).1.contains(&format!("behind run {other}")));
        assert_eq!(rule(&queued, &[], None, &[]).0, "queued");
        let again = Run { not_before: Some(Timestamp(5_000)), attempt: 2, reason: Some("attempt 1 failed: x".into()), ..run(Pending) };
        let (word, text) = rule(&again, &[], None, &[]);
        assert_eq!(word, "retry");
        assert!(text.contains("until 1970-01-01T00:00:05.000Z for attempt 2, because attempt 1 failed: x"), "{text}");
        let (word, text) = rule(&run(Pending), &[], None, &["c.D"]);
        assert_eq!(word, "noWorker");
        assert!(text.contains("a.B") && text.contains("Watched now: c.D."), "{text}");
        assert_eq!(rule(&run(Pending), &[], None, &["a.B"]).0, "starting");
        assert_eq!(rule(&run(Scheduled), &[], Some(WorkerId::random()), &[]).0, "startTold");
        assert_eq!(rule(&run(Scheduled), &[], None, &[]).0, "noWorker");
        let counters = Counters { left: 1, success: 2, error: 3, total: 6 };
        let (word, text) = rule(&Run { counters, ..run(Running) }, &[], None, &["a.B"]);
        assert_eq!(word, "running");
        assert!(text.contains("Of 6 requests 1 are left"), "{text}");
        let rules = RunRules { paused_at: Some(Timestamp(7_000)), ..RunRules::default() };
        let paused = |state| Run { rules: rules.clone(), ..run(state) };
        let (word, text) = rule(&paused(Running), &[], None, &["a.B"]);
        assert!(word == "paused" && text.contains("paused since 1970-01-01T00:00:07.000Z"), "{text}");
        let (word, text) = rule(&paused(Pending), &[], None, &["a.B"]);
        assert!(word == "starting" && text.contains("It is paused since"), "{text}");
        assert!(!rule(&paused(Success), &[], None, &[]).1.contains("paused"));
        for (state, word) in [(Failed, "failed"), (Success, "success"), (Stopped, "stopped")] {
            assert_eq!(rule(&Run { reason: Some("r".into()), ..run(state) }, &[], None, &[]).0, word);
        }
        let callback = Run { kind: JobKind::Callback, ..run(Pending) };
        assert_eq!(rule(&callback, &[], None, &[]).0, "starting");
    }
}
