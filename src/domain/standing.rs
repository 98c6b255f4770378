//! Where a run stands, and why it is not further.

use super::ids::{Identity, WorkerId};
use super::job::JobKind;
use super::run::{Run, RunState};
use super::schedule::Answer;
use super::time::Timestamp;

/// What is known around a run.
#[derive(Debug)]
pub struct Around<'a> {
    /// The run, with its counters as they are now.
    pub run: &'a Run,
    /// The runs of its job that are not over and were made before it, the oldest first.
    pub ahead: &'a [Identity],
    /// Who carries it out.
    pub worker: Option<WorkerId>,
    /// The classes that workers watch now.
    pub watched: &'a [String],
    /// Now.
    pub now: Timestamp,
}

/// Explains where a run stands.
#[must_use]
pub fn explain_run(around: &Around<'_>) -> Answer {
    let mut answer = match around.run.state {
        RunState::Pending => pending(around),
        RunState::Scheduled => scheduled(around),
        RunState::Running => running(around),
        RunState::Failed | RunState::Success | RunState::Stopped => over(around.run),
    };
    answer.because.insert(0, origin(around.run));
    answer
}

fn origin(run: &Run) -> String {
    let by = run.rules.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let again = run.retry_of.map(|other| format!(", to repeat run {other}")).unwrap_or_default();
    match run.planned_at {
        Some(planned) => {
            format!("It was made at {} for the planned instant {planned}{by}{again}.", run.creation_time)
        }
        None => format!("It was made at {} by hand{by}{again}.", run.creation_time),
    }
}

fn pending(around: &Around<'_>) -> Answer {
    let run = around.run;
    if run.is_queued() {
        let text = match around.ahead {
            [] => "It waits for its turn, and no other run of the job is in front of it: it is about to begin.".to_owned(),
            [one] => format!("It waits for its turn behind run {one}."),
            [first, rest @ ..] => format!("It waits for its turn behind run {first} and {} more.", rest.len()),
        };
        return Answer::new("waiting", "queued", vec![text]);
    }
    if let Some(at) = run.not_before.filter(|at| *at > around.now) {
        if run.is_ahead() {
            return Answer::new("waiting", "planned", vec![format!("It begins at {at}, the instant that it is planned for.")]);
        }
        let why = run.reason.as_deref().map_or_else(|| format!("attempt {} failed", run.attempt.saturating_sub(1)), str::to_owned);
        let text = format!("It waits until {at} for attempt {}, since {why}.", run.attempt);
        return Answer::new("waiting", "retry", vec![text]);
    }
    match run.kind {
        JobKind::Block => {
            nobody(around).unwrap_or_else(|| Answer::new("waiting", "starting", vec!["A worker for it is being chosen.".to_owned()]))
        }
        JobKind::Application | JobKind::Callback | JobKind::Task => {
            Answer::new("waiting", "starting", vec!["It is about to begin.".to_owned()])
        }
    }
}

/// Nobody is there who could carry it out.
fn nobody(around: &Around<'_>) -> Option<Answer> {
    let class = &around.run.class_name;
    if around.worker.is_some() || around.watched.contains(class) {
        return None;
    }
    let watched = match around.watched {
        [] => "No worker watches anything now.".to_owned(),
        names => {
            let shown = names.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
            let more = names.len().checked_sub(20).filter(|more| *more > 0).map(|more| format!(" and {more} more")).unwrap_or_default();
            format!("Watched now: {shown}{more}.")
        }
    };
    Some(Answer::new("waiting", "noWorker", vec![format!("No worker watches the class {class}."), watched]))
}

fn scheduled(around: &Around<'_>) -> Answer {
    match (around.worker, nobody(around)) {
        (Some(worker), _) => {
            let text = format!("Worker {worker} was told to start it, and has not said yet that its first requests are pushed.");
            Answer::new("scheduled", "startTold", vec![text])
        }
        (None, Some(answer)) if around.run.kind == JobKind::Block => answer,
        (None, _) => Answer::new("scheduled", "starting", vec!["It was told to start, and has not said yet that it works.".to_owned()]),
    }
}

fn running(around: &Around<'_>) -> Answer {
    let run = around.run;
    let since = run.start_time.map(|at| format!(" since {at}")).unwrap_or_default();
    let mut because = vec![format!("It works{since}, attempt {}.", run.attempt)];
    if run.kind == JobKind::Block {
        let c = run.counters;
        because.push(format!("Of {} requests {} are left, {} are answered well, {} are not.", c.total, c.left, c.success, c.error));
        match around.worker {
            Some(worker) => because.push(format!("Worker {worker} carries it out.")),
            None => because.extend(nobody(around).map_or(vec!["A worker for it is being chosen.".to_owned()], |answer| answer.because)),
        }
    }
    Answer::new("running", "running", because)
}

fn over(run: &Run) -> Answer {
    let at = run.finish_time.map(|at| format!(" at {at}")).unwrap_or_default();
    let (rule, how) = match run.state {
        RunState::Success => ("success", "It ended well"),
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
    use crate::domain::ids::JobId;
    use crate::domain::run::{Counters, RunRules};

    fn run(state: RunState) -> Run {
        Run {
            identity: Identity::random(),
            no: 1,
            job_id: JobId::random(),
            job_name: "j".into(),
            class_name: "a.B".into(),
            arguments: None,
            state,
            reason: None,
            priority: 0,
            download: Default::default(),
            queue: Default::default(),
            start_returned: false,
            block_times: 0,
            counters: Counters::default(),
            kind: JobKind::Block,
            rules: RunRules::default(),
            attempt: 1,
            not_before: None,
            result: None,
            follow: false,
            retry_of: None,
            trace_id: None,
            planned_at: None,
            start_time: None,
            creation_time: Timestamp(0),
            finish_time: None,
            update_by: None,
        }
    }

    fn rule(run: &Run, ahead: &[Identity], worker: Option<WorkerId>, watched: &[&str]) -> (String, String) {
        let watched: Vec<String> = watched.iter().map(|name| (*name).to_owned()).collect();
        let answer = explain_run(&Around { run, ahead, worker, watched: &watched, now: Timestamp(1_000) });
        assert!(answer.because.len() > 1 && answer.because.iter().all(|text| text.ends_with('.')), "{answer:?}");
        (answer.rule, answer.because.join(" "))
    }

    #[test]
    fn each_state_is_explained() {
        use RunState::{Failed, Pending, Running, Scheduled, Stopped, Success};
        let other = Identity::random();
        let queued = Run { not_before: Some(Run::QUEUED), ..run(Pending) };
        assert!(rule(&queued, &[other], None, &[]).1.contains(&format!("behind run {other}")));
        assert_eq!(rule(&queued, &[], None, &[]).0, "queued");
        let again = Run { not_before: Some(Timestamp(5_000)), attempt: 2, reason: Some("attempt 1 failed: x".into()), ..run(Pending) };
        let (word, text) = rule(&again, &[], None, &[]);
        assert_eq!(word, "retry");
        assert!(text.contains("until 1970-01-01T00:00:05.000Z for attempt 2, since attempt 1 failed: x"), "{text}");
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
        for (state, word) in [(Failed, "failed"), (Success, "success"), (Stopped, "stopped")] {
            assert_eq!(rule(&Run { reason: Some("r".into()), ..run(state) }, &[], None, &[]).0, word);
        }
        let callback = Run { kind: JobKind::Callback, ..run(Pending) };
        assert_eq!(rule(&callback, &[], None, &[]).0, "starting");
    }
}
