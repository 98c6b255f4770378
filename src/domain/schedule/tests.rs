//! Plans and decisions, case by case.

use super::*;

const MINUTE: i64 = 60_000;
const T: Timestamp = Timestamp(1_700_000_040_000); // a whole minute

fn at(minutes: i64) -> Timestamp {
    T.plus_ms(minutes * MINUTE)
}

fn every(ms: u64) -> Schedule {
    Schedule { triggers: vec![Trigger { every: Some(ms), anchor: Some(T), ..Trigger::default() }], ..Schedule::default() }
}

fn minutely() -> Schedule {
    every(MINUTE as u64)
}

fn plan(schedule: &Schedule) -> Plan {
    schedule.compile().expect("a schedule")
}

fn wrong(schedule: &Schedule) -> String {
    schedule.compile().expect_err("refused").field
}

/// Decides with nothing open, nothing changed.
fn free(schedule: &Schedule, policies: &Policies, now: Timestamp) -> Step {
    decide(&plan(schedule), policies, &PlanState::new(T), &Circumstances::default(), now)
}

fn fates(step: &Step) -> Vec<(i64, &'static str)> {
    step.rows
        .iter()
        .map(|row| {
            let fate = match &row.fate {
                FireOutcome::Fire { queued: false } => "fire",
                FireOutcome::Fire { queued: true } => "queued",
                FireOutcome::Skipped => "skipped",
                FireOutcome::Missed => "missed",
                FireOutcome::Merged(_) => "merged",
            };
            (row.at.since_ms(T) / MINUTE, fate)
        })
        .collect()
}

#[test]
fn an_anchored_interval_keeps_its_rhythm() {
    let plan = plan(&every(700));
    for (after, next) in [(-5_000, 0), (-1, 0), (0, 700), (699, 700), (700, 1_400), (1_399, 1_400)] {
        let found = plan.named_after(T.plus_ms(after)).map(|next| next.at.since_ms(T));
        assert_eq!(found, Some(next), "after {after}");
    }
}

#[test]
fn a_deploy_keeps_the_anchor_unless_the_interval_is_another() {
    let unanchored = |ms| Schedule { triggers: vec![Trigger { every: Some(ms), ..Trigger::default() }], ..Schedule::default() };
    let mut again = unanchored(60_000);
    again.anchor(at(7), Some(&minutely()));
    assert_eq!(again.triggers[0].anchor, Some(T));
    let mut other = unanchored(30_000);
    other.anchor(at(7), Some(&minutely()));
    assert_eq!(other.triggers[0].anchor, Some(at(7)));
}

#[test]
fn of_several_triggers_the_first_counts_and_equal_ones_once() {
    let mut schedule = minutely();
    schedule.triggers.push(Trigger { every: Some(90_000), anchor: Some(T), ..Trigger::default() });
    let plan = plan(&schedule);
    let mut found = Vec::new();
    let mut cursor = T;
    for _ in 0..5 {
        cursor = plan.named_after(cursor).expect("a next one").at;
        found.push(cursor.since_ms(T) / 1_000);
    }
    assert_eq!(found, [60, 90, 120, 180, 240], "180 is named twice");
}

#[test]
fn bounds_are_kept() {
    let bounded = Schedule { start_at: Some(at(5)), end_at: Some(at(7)), ..minutely() };
    let plan = plan(&bounded);
    assert_eq!(plan.named_after(T).map(|next| next.at), Some(at(5)), "the start itself is meant");
    assert_eq!(plan.named_after(at(6)).map(|next| next.at), Some(at(7)), "and so is the end");
    assert_eq!(plan.named_after(at(7)), None);
    assert!(!plan.can_fire_after(at(7)));
    let step = free(
        &Schedule { max_fires: Some(2), ..minutely() },
        &Policies { overlap: Some(Overlap::Allow), misfire: all(10), ..Policies::default() },
        at(5),
    );
    assert_eq!(fates(&step), [(1, "fire"), (2, "fire")]);
    assert_eq!(super::Plan::next(&self::plan(&Schedule { max_fires: Some(2), ..minutely() }), &step.state, false), None);
}

#[test]
fn what_means_nothing_is_refused_where_it_stands() {
    let trigger = |trigger| Schedule { triggers: vec![trigger], ..Schedule::default() };
    assert_eq!(wrong(&trigger(Trigger::default())), "triggers[0].cron");
    assert_eq!(wrong(&trigger(Trigger { every: Some(99), ..Trigger::default() })), "triggers[0].every");
    assert_eq!(wrong(&trigger(Trigger { at: Some(T), every: Some(1_000), ..Trigger::default() })), "triggers[0].cron");
    assert_eq!(wrong(&trigger(Trigger { at: Some(T), anchor: Some(T), ..Trigger::default() })), "triggers[0].anchor");
    assert_eq!(wrong(&Schedule { zone: Some("Mars/Olympus".into()), ..minutely() }), "zone");
    assert_eq!(wrong(&Schedule { start_at: Some(at(2)), end_at: Some(at(1)), ..minutely() }), "endAt");
    assert_eq!(wrong(&Schedule { max_fires: Some(0), ..minutely() }), "maxFires");
    let dark = |blackout| Schedule { blackouts: vec![blackout], ..minutely() };
    assert_eq!(wrong(&dark(Blackout::default())), "blackouts[0].from");
    assert_eq!(wrong(&dark(Blackout { dates: vec!["24.12.".into()], ..Blackout::default() })), "blackouts[0].dates");
    let half = Blackout { start: Some("25:00".into()), end: Some("26:00".into()), ..Blackout::default() };
    assert_eq!(wrong(&dark(half)), "blackouts[0].start");
}

fn all(limit: u32) -> Misfire {
    Misfire { policy: MisfirePolicy::All, limit, ..Misfire::default() }
}

#[test]
fn what_is_late_goes_by_the_misfire_policy() {
    let allow = |misfire| Policies { misfire, overlap: Some(Overlap::Allow), ..Policies::default() };
    let of = |policy| allow(Misfire { policy, ..Misfire::default() });
    let now = at(4).plus_ms(30_000); // 4 instants, each at least 30 s late
    assert_eq!(fates(&free(&minutely(), &of(MisfirePolicy::Once), now)), [(1, "merged"), (2, "merged"), (3, "merged"), (4, "fire")]);
    assert_eq!(fates(&free(&minutely(), &of(MisfirePolicy::Skip), now)), [(1, "missed"), (2, "missed"), (3, "missed"), (4, "missed")]);
    assert_eq!(fates(&free(&minutely(), &allow(all(2)), now)), [(1, "missed"), (2, "missed"), (3, "fire"), (4, "fire")]);
    // A fire that is on time includes those that were late.
    let step = free(&minutely(), &of(MisfirePolicy::Once), at(4).plus_ms(1_000));
    assert_eq!(fates(&step), [(1, "merged"), (2, "merged"), (3, "merged"), (4, "fire")]);
    assert_eq!(step.rows[0].fate, FireOutcome::Merged(Some(at(4))));
    assert_eq!(step.rows[3].rule, "due");
    let on_time = free(&minutely(), &of(MisfirePolicy::Skip), at(4).plus_ms(1_000));
    assert_eq!(fates(&on_time), [(1, "missed"), (2, "missed"), (3, "missed"), (4, "fire")]);
    // Beyond the window fires are missed.
    let short = allow(Misfire { window: 100_000, ..all(10) });
    assert_eq!(fates(&free(&minutely(), &short, now)), [(1, "missed"), (2, "missed"), (3, "fire"), (4, "fire")]);
}

#[test]
fn a_fire_that_finds_the_job_at_work_goes_by_the_overlap_policy() {
    let of = |overlap| Policies { misfire: all(10), overlap: Some(overlap), ..Policies::default() };
    let with = |overlap, at_work, queued| {
        let given = Circumstances { open: Open { at_work, queued }, ..Circumstances::default() };
        decide(&plan(&minutely()), &of(overlap), &PlanState::new(T), &given, at(2).plus_ms(9_000))
    };
    assert_eq!(fates(&with(Overlap::Allow, 1, 0)), [(1, "fire"), (2, "fire")]);
    assert_eq!(fates(&with(Overlap::Skip, 1, 0)), [(1, "skipped"), (2, "skipped")]);
    assert_eq!(fates(&with(Overlap::Skip, 0, 0)), [(1, "fire"), (2, "skipped")]);
    assert_eq!(fates(&with(Overlap::QueueOne, 1, 0)), [(1, "queued"), (2, "merged")]);
    assert_eq!(with(Overlap::QueueOne, 1, 0).rows[1].fate, FireOutcome::Merged(Some(at(1))));
    assert_eq!(with(Overlap::QueueOne, 1, 1).rows[0].fate, FireOutcome::Merged(None), "into the run that waits already");
    assert_eq!(fates(&with(Overlap::QueueOne, 0, 0)), [(1, "fire"), (2, "queued")]);
    assert_eq!(fates(&with(Overlap::QueueAll, 1, 3)), [(1, "queued"), (2, "queued")]);
    let replaced = with(Overlap::Replace, 1, 0);
    assert!(replaced.replace);
    assert_eq!(fates(&replaced), [(1, "merged"), (2, "fire")]);
    // A late fire that should be made up for by a skipped fire is skipped as well.
    let once = Policies { overlap: Some(Overlap::Skip), ..Policies::default() };
    let given = Circumstances { open: Open { at_work: 1, queued: 0 }, ..Circumstances::default() };
    let step = decide(&plan(&minutely()), &once, &PlanState::new(T), &given, at(2).plus_ms(9_000));
    assert_eq!(fates(&step), [(1, "skipped"), (2, "skipped")]);
    // By default runs of a job with a plan do not overlap.
    let usual = decide(&plan(&minutely()), &Policies::default(), &PlanState::new(T), &given, at(1));
    assert_eq!(fates(&usual), [(1, "skipped")]);
}

#[test]
fn blackouts_are_skipped_with_their_name() {
    let dark = Blackout { name: Some("night".into()), from: Some(at(2)), to: Some(at(4)), ..Blackout::default() };
    let policies = Policies { misfire: all(10), overlap: Some(Overlap::Allow), ..Policies::default() };
    let step = free(&Schedule { blackouts: vec![dark], ..minutely() }, &policies, at(5));
    assert_eq!(fates(&step), [(1, "fire"), (2, "skipped"), (3, "skipped"), (4, "fire"), (5, "fire")]);
    assert_eq!(step.rows[1].reason.as_deref(), Some("it falls into `night`"));
}

#[test]
fn a_daily_blackout_may_pass_midnight() {
    let night = Blackout { start: Some("22:00".into()), end: Some("06:00".into()), days: vec!["fri".into()], ..Blackout::default() };
    let night = night.compile().expect("a blackout");
    // 2023-11-17 was a Friday.
    let instant = |text: &str| -> Timestamp { serde_json::from_value(text.into()).expect("a time") };
    for (text, covered) in [
        ("2023-11-17T21:59:59Z", false),
        ("2023-11-17T22:00:00Z", true),
        ("2023-11-18T05:59:59.999Z", true),
        ("2023-11-18T06:00:00Z", false),
        ("2023-11-18T22:00:00Z", false),
        ("2023-11-17T05:00:00Z", false),
    ] {
        assert_eq!(night.covers(instant(text), &Zone::utc()), covered, "{text}");
    }
}

#[test]
fn a_run_that_asks_wins_once_and_silence_has_an_end() {
    let asked = PlanState { asked_at: Some(at(3).plus_ms(500)), ..PlanState::new(T) };
    let allow = Policies { overlap: Some(Overlap::Allow), misfire: all(10), ..Policies::default() };
    let step = decide(&plan(&minutely()), &allow, &asked, &Circumstances::default(), at(4));
    assert_eq!(fates(&step), [(1, "skipped"), (2, "skipped"), (3, "skipped"), (3, "fire"), (4, "fire")]);
    assert_eq!((step.rows[0].rule, step.rows[3].kind, step.rows[4].kind), ("asked", Kind::Asked, Kind::Plan));
    assert_eq!(step.state.asked_at, None);
    // A time in the past means now.
    let past = PlanState { asked_at: Some(at(-9)), ..PlanState::new(T) };
    assert_eq!(plan(&minutely()).next(&past, false).map(|next| next.at), Some(T.plus_ms(1)));
    // It cannot be postponed beyond this.
    let silent = Schedule { longest_silence: Some(2 * MINUTE as u64), ..Schedule::default() };
    let far = PlanState { asked_at: Some(at(90)), last_fire: Some(T), ..PlanState::new(T) };
    let next = plan(&silent).next(&far, false).expect("a next one");
    assert_eq!((next.at, next.kind), (at(2), Kind::Silence));
}

#[test]
fn an_interval_after_the_end_waits_for_the_end() {
    let resting =
        Schedule { triggers: vec![Trigger { every: Some(MINUTE as u64), after_end: true, ..Trigger::default() }], ..Schedule::default() };
    let plan = plan(&resting);
    let state = PlanState::new(T);
    assert_eq!(plan.next(&state, false).map(|next| next.at), Some(at(1)));
    assert_eq!(plan.next(&state, true), None);
    let step = decide(&plan, &Policies::default(), &state, &Circumstances::default(), at(1));
    assert_eq!((fates(&step), step.more), (vec![(1, "fire")], true));
    let open = Open { at_work: 0, queued: 0 };
    let after = settle(&step.state, Some((crate::domain::run::RunState::Success, at(5))), open);
    assert_eq!(plan.next(&after.state, false).map(|next| next.at), Some(at(6)));
    // A skipped fire has no run end to wait for.
    let dark = Blackout { from: Some(T), to: Some(at(1).plus_ms(1)), ..Blackout::default() };
    let dark = self::plan(&Schedule { blackouts: vec![dark], ..resting });
    let step = decide(&dark, &Policies::default(), &state, &Circumstances::default(), at(1));
    assert_eq!(fates(&step), [(1, "skipped")]);
    assert_eq!(dark.next(&step.state, false).map(|next| next.at), Some(at(2)));
}

#[test]
fn a_clock_that_goes_back_doubles_nothing() {
    let plan = plan(&minutely());
    let policies = Policies { overlap: Some(Overlap::Allow), misfire: all(10), ..Policies::default() };
    let ahead = free(&minutely(), &policies, at(3));
    assert_eq!(ahead.state.decided_until, at(3));
    let back = decide(&plan, &policies, &ahead.state, &Circumstances::default(), at(1).plus_ms(500));
    assert_eq!((back.rows.len(), back.rewind), (0, Some(at(1).plus_ms(500))));
    let fired = [at(1), at(2), at(3)];
    let given = Circumstances { fired_ahead: &fired, ..Circumstances::default() };
    let again = decide(&plan, &policies, &back.state, &given, at(4));
    assert_eq!(fates(&again), [(4, "fire")]);
    assert_eq!(again.state.fires, 4);
    // If the clock went back only a little, the decision waits.
    for little in [1, AHEAD_MS, SMALL_STEP_MS] {
        assert_eq!(decide(&plan, &policies, &ahead.state, &Circumstances::default(), at(3).plus_ms(-little)).rewind, None, "{little}");
    }
}

/// When the clock goes back, everything in a plan that counts from a later time counts from the current time instead.
#[test]
fn pauses_do_not_grow_when_the_clock_goes_back() {
    let hour = at(60);
    let ahead = PlanState { last_fire: Some(hour), rest_from: hour, ..PlanState::new(hour) };
    let next = |schedule: &Schedule, state: &PlanState| plan(schedule).next(&state.rewound(T), false).map(|next| next.at);
    let rests = Trigger { every: Some(2_000), anchor: Some(T), after_end: true, ..Trigger::default() };
    assert_eq!(next(&Schedule { triggers: vec![rests], ..Schedule::default() }, &ahead), Some(T.plus_ms(2_000)));
    assert_eq!(next(&Schedule { longest_silence: Some(5_000), ..Schedule::default() }, &ahead), Some(T.plus_ms(5_000)));
    let none = Schedule::default();
    let asked = |asked_from| PlanState { asked_at: Some(hour.plus_ms(4_000)), asked_from, ..ahead };
    assert_eq!(next(&none, &asked(Some(hour))), Some(T.plus_ms(4_000)), "a pause");
    assert_eq!(next(&none, &asked(None)), Some(hour.plus_ms(4_000)), "an instant");
    assert!(asked(Some(hour)).rewound(T).may_have_fired_ahead());
    assert!(!asked(Some(hour)).rewound(T).is_from_later(T));
    let only_rest = PlanState { rest_from: hour, ..PlanState::new(T) };
    assert!(only_rest.is_from_later(T) && !only_rest.is_from_later(hour));
    // A request between the clock change and its detection counts as well.
    let mut late = PlanState::new(T);
    late.ask(hour.plus_ms(4_000), Some(hour), T);
    assert_eq!((late.asked_at, late.asked_from), (Some(T.plus_ms(4_000)), Some(T)));
}

#[test]
fn an_interval_that_was_anchored_in_the_time_that_comes_again_keeps_its_rhythm() {
    let every = |ms, anchor| Trigger { every: Some(ms), anchor: Some(anchor), ..Trigger::default() };
    let triggers = vec![every(7 * 60_000, at(100)), every(420_000, at(200)), every(420_000, at(1)), every(0, at(100))];
    let mut schedule = Schedule { triggers, ..Schedule::default() };
    schedule.set_back(at(9), at(100));
    let anchors: Vec<_> = schedule.triggers.iter().map(|trigger| trigger.anchor).collect();
    // The second had a later anchor when it was stored; the third began before.
    assert_eq!(anchors, [Some(at(9)), Some(at(200)), Some(at(1)), Some(at(100))]);
}

/// A fire that made a run before the clock went back is passed over, and the plan continues after it. Otherwise its job would be
/// notified repeatedly until the next fire.
#[test]
fn what_fired_before_the_clock_went_back_is_passed() {
    let plan = plan(&every(60_000));
    let state = PlanState { fired_until: Some(at(1)), ..PlanState::new(T) };
    let given = Circumstances { fired_ahead: &[at(1)], ..Circumstances::default() };
    let step = decide(&plan, &Policies::default(), &state, &given, at(1));
    assert_eq!((step.rows.len(), step.is_empty()), (0, false));
    assert_eq!(plan.next(&step.state, false).map(|next| next.at), Some(at(2)));
}

/// A run requested a time, and a run from before the clock change is in the ledger at exactly that millisecond.
#[test]
fn what_a_run_asked_for_is_not_lost_to_one_that_fired_before_the_clock_went_back() {
    let none = plan(&Schedule::default());
    let state = PlanState { asked_at: Some(at(1)), fired_until: Some(at(2)), ..PlanState::new(T) };
    let given = Circumstances { fired_ahead: &[at(1), at(1).plus_ms(1)], ..Circumstances::default() };
    let at_its_time = decide(&none, &Policies::default(), &state, &given, at(1));
    assert!(at_its_time.rows.is_empty() && !at_its_time.is_empty());
    assert_eq!(none.next(&at_its_time.state, false).map(|next| next.at), Some(at(1).plus_ms(1)));
    let later = decide(&none, &Policies::default(), &state, &given, at(1).plus_ms(40));
    assert_eq!(later.rows.iter().map(|row| (row.at, row.kind)).collect::<Vec<_>>(), [(at(1).plus_ms(2), Kind::Asked)]);
    assert_eq!(later.state.asked_at, None);
}

#[test]
fn a_month_of_missed_seconds_is_a_few_rows() {
    let policies = Policies::default();
    let mut state = PlanState::new(T);
    let (mut rows, mut instants, mut steps) = (0, 0, 0);
    let now = T.plus_ms(30 * 86_400_000);
    loop {
        let step = decide(&plan(&every(10_000)), &policies, &state, &Circumstances::default(), now);
        rows += step.rows.len();
        instants += step.rows.iter().map(|row| row.instants).sum::<u64>();
        steps += 1;
        state = step.state;
        if !step.more {
            break;
        }
    }
    assert_eq!(instants, 30 * 8_640, "none is left out");
    assert!(rows <= 600 * steps && steps < 5, "{rows} rows in {steps} steps");
}

#[test]
fn a_day_of_missed_seconds_is_decided_at_once() {
    let begin = std::time::Instant::now();
    let open = Circumstances { open: Open { at_work: 1, queued: 0 }, ..Circumstances::default() };
    let step = decide(&plan(&every(1_000)), &Policies::default(), &PlanState::new(T), &open, T.plus_ms(86_400_000));
    assert_eq!(step.rows.iter().map(|row| row.instants).sum::<u64>(), 86_400);
    // Comparing each fire with all others would take minutes.
    assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    let reasons: std::collections::BTreeSet<_> = step.rows.iter().map(|row| (row.rule, row.reason.as_deref())).collect();
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), [("overlap", Some("a run of the job is not over"))], "no run makes up for them");
}

#[test]
fn of_several_pauses_after_the_end_the_shortest_counts() {
    let rest = |ms| Trigger { every: Some(ms), after_end: true, ..Trigger::default() };
    let plan = plan(&Schedule { triggers: vec![rest(90_000), rest(60_000)], ..Schedule::default() });
    let next = plan.next(&PlanState::new(T), false).map(|next| (next.at, next.trigger));
    assert_eq!(next, Some((at(1), Some(1))));
}

/// A run that asks for the next one at once, or for a time in the past, makes no runs without a pause.
#[test]
fn a_time_that_is_asked_for_is_never_nearer_than_the_shortest_interval() {
    let soonest = T.plus_ms(SHORTEST_INTERVAL as i64);
    for (asked, expected) in [(at(-9), soonest), (T, soonest), (T.plus_ms(99), soonest), (T.plus_ms(101), T.plus_ms(101))] {
        let mut state = PlanState::new(T);
        state.ask(asked, None, T);
        assert_eq!(state.asked_at, Some(expected), "{asked}");
    }
}

/// A job that runs only at times requested by its runs continues after the broker was down for days.
#[test]
fn a_time_that_nothing_else_follows_is_never_lost() {
    let mut state = PlanState::new(T);
    state.ask(at(1), None, T);
    let days_later = T.plus_ms(3 * 86_400_000);
    let step = decide(&plan(&Schedule::default()), &Policies::default(), &state, &Circumstances::default(), days_later);
    assert_eq!(fates(&step), [(1, "fire")]);
    // If a trigger follows, the window applies.
    let step = decide(&plan(&minutely()), &Policies::default(), &state, &Circumstances::default(), days_later);
    assert_eq!(step.rows.iter().find(|row| row.kind == Kind::Asked).map(|row| row.rule), Some("window"));
}

/// Each decision takes a write: after months there must not be one for each interval.
#[test]
fn missed_intervals_after_the_end_share_a_row() {
    let rest = Trigger { every: Some(MINUTE as u64), after_end: true, ..Trigger::default() };
    let resting = Schedule { triggers: vec![rest], ..Schedule::default() };
    let days_later = T.plus_ms(100 * 86_400_000 + 30_000);
    let rows = |step: &Step| step.rows.iter().map(|row| (row.until.since_ms(T) / MINUTE, row.instants, row.rule)).collect::<Vec<_>>();

    let step = free(&resting, &Policies::default(), days_later);
    let within = 99 * 1_440;
    assert_eq!((fates(&step), rows(&step)), (vec![(1, "missed")], vec![(within, within as u64, "window")]));
    assert!(step.more);
    let step = decide(&plan(&resting), &Policies::default(), &step.state, &Circumstances::default(), days_later);
    assert_eq!(fates(&step), [(within + 1, "fire")], "the first within the window is made up for");

    let skip = Policies { misfire: Misfire { policy: MisfirePolicy::Skip, ..Misfire::default() }, ..Policies::default() };
    let step = free(&resting, &skip, days_later);
    assert_eq!(rows(&step), [(within, within as u64, "window")]);
    let step = decide(&plan(&resting), &skip, &step.state, &Circumstances::default(), days_later);
    assert_eq!(rows(&step), [(100 * 1_440, 1_440, "misfire")]);
    assert_eq!(plan(&resting).next(&step.state, false).map(|next| next.at), Some(at(100 * 1_440 + 1)), "then it goes on");

    // The end of the schedule is the last; a blackout may have another outcome.
    let ending = Schedule { end_at: Some(at(3)), ..resting.clone() };
    assert_eq!(rows(&free(&ending, &Policies::default(), days_later)), [(3, 3, "window")]);
    let dark = Blackout { from: Some(at(2)), to: Some(at(3)), ..Blackout::default() };
    let dark = Schedule { blackouts: vec![dark], ..resting };
    assert_eq!(rows(&free(&dark, &Policies::default(), days_later)), [(1, 1, "window")]);
}
