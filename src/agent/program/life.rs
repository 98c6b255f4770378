//! The life cycle of one program, each in a separate task: a program that hangs delays no other.

use super::Programs;
use super::forwarder::Teller;
use super::launch::{self, Claim, END, EXIT, EndOrder, Ended, STATE, Started};
use super::one::Program;
use super::package::refusal;
use super::prepare::prepare;
use super::record::Phase;
use crate::domain::time::Timestamp;
use crate::domain::trace::SpanId;
use crate::protocol::application::{ProgramError, ProgramErrorKind, ProgramExit, ProgramReport, ProgramState};
use std::path::PathBuf;
use std::process::Stdio;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// Interval between checks of the program's files.
const TICK: Duration = Duration::from_millis(25);
/// Ticks between checks whether the launcher is running.
const TICKS_OF_LIFE: u32 = 40;
/// Time for a launcher with the claim to report that the program runs.
const STARTING: Duration = Duration::from_secs(10);

/// Runs from the order until the broker has acknowledged the end.
pub async fn live(programs: Rc<Programs>, program: Rc<Program>) {
    let mut teller = Teller::new(Rc::clone(&programs), Rc::clone(&program));
    if !program.is_over() {
        let is_new = program.record.borrow().phase == Phase::Accepted;
        let since = is_new.then(Timestamp::now);
        let begun = if is_new { begin(&programs, &program).await } else { find(&program).await };
        let last = match begun {
            Ok((child, started)) => {
                {
                    let mut report = program.report.borrow_mut();
                    (report.state, report.at, report.pid) = (ProgramState::Running, started.at, u32::try_from(started.program.pid).ok());
                    log::info!(
                        "program started run_id={} instance={} pid={}",
                        report.program.identity,
                        report.program.instance,
                        started.program.pid
                    );
                }
                programs.say(&program);
                carry(&program, &mut teller, child, started).await
            }
            Err(last) => last,
        };
        log::info!("program ended run_id={} instance={} state={:?}", last.program.identity, last.program.instance, last.state);
        if programs.sink.is_some() {
            let began = launch::read::<Started>(&program.folder, STATE).ok().flatten().map(|started| started.at);
            programs.trace(&program, (since.or(began).unwrap_or(last.at), began), &last);
        }
        let record = {
            let mut record = program.record.borrow_mut();
            record.last = Some(last.clone());
            record.clone()
        };
        if let Err(error) = record.write(&program.folder).await {
            // The launcher's own file still records how it ended.
            log::error!("cannot write the end of a program folder={} error={error}", program.folder.display());
        }
        *program.report.borrow_mut() = last;
        programs.one_is_over();
    }
    while !program.is_settled.get() {
        teller.tell();
        program.changed.notified().await;
    }
    let folder = program.folder.clone();
    let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
    if let Ok(Err(error)) = removed {
        log::warn!("cannot delete the folder of a program folder={} error={error}", program.folder.display());
    }
    programs.forget(&program);
}

/// Fetches and unpacks the package, and starts the program.
async fn begin(programs: &Programs, program: &Program) -> Result<(Option<Child>, Started), ProgramReport> {
    let refused = |error: ProgramError| program.last(ProgramState::Refused, Timestamp::now(), Some(error), None);
    let spawn = |message: String| refused(refusal(ProgramErrorKind::Spawn, message));
    // An earlier agent may have accepted the order, with other settings.
    programs.check_allowed().map_err(refused)?;
    let mut order = program.record.borrow().order.clone();
    if programs.sink.is_some() {
        // What the program does belongs to its span here.
        let of = order.program;
        order.span_id = order.span_id.map(|_| SpanId::of_program(of.identity, of.instance, of.attempt));
    }
    let kept = match &order.package {
        Some(package) => Some(tokio::select! {
            kept = programs.packages().get(package) => kept.map_err(refused)?,
            order = program.asked_to_end() => return Err(ended_before(program, order)),
        }),
        None => None,
    };
    let (settings, folder) = (programs.settings.clone(), program.folder.clone());
    let path: Option<PathBuf> = kept.as_ref().map(|kept| kept.path.clone());
    let prepared = tokio::task::spawn_blocking(move || prepare(&order, &settings, &folder, path.as_deref())).await;
    prepared.map_err(|e| spawn(e.to_string()))?.map_err(refused)?;
    drop(kept);
    let order = program.ending.borrow().clone();
    if let Some(order) = order {
        return Err(ended_before(program, order));
    }
    let record = {
        let mut record = program.record.borrow_mut();
        record.phase = Phase::Launching;
        record.clone()
    };
    record.write(&program.folder).await.map_err(|e| spawn(format!("cannot write the record of the program: {e}")))?;
    let (child, said) =
        launch(&programs.settings.inner.launcher, program).await.map_err(|e| spawn(format!("cannot start the launcher: {e}")))?;
    if let Some(why) = said.refused {
        let kind = if said.is_missing { ProgramErrorKind::NotFound } else { ProgramErrorKind::Spawn };
        return Err(refused(refusal(kind, why)));
    }
    match launch::read::<Started>(&program.folder, STATE) {
        Ok(Some(started)) => Ok((Some(child), started)),
        // The launcher prints its line last: without the file, it died or its disk is full.
        _ => Err(lost(program).await),
    }
}

fn ended_before(program: &Program, order: EndOrder) -> ProgramReport {
    let exit = ProgramExit { ended_by: Some(order.by), ..ProgramExit::default() };
    program.last(ProgramState::Exited, Timestamp::now(), None, Some(exit))
}

/// The launcher's first and only line.
#[derive(Default, serde::Deserialize)]
#[serde(default)]
struct LauncherReply {
    pid: Option<u32>,
    refused: Option<String>,
    is_missing: bool,
}

async fn launch(launcher: &[String], program: &Program) -> std::io::Result<(Child, LauncherReply)> {
    let (own, arguments) = launcher.split_first().ok_or(std::io::ErrorKind::NotFound)?;
    let mut command = Command::new(own);
    // Without the agent's environment: it may hold the token, and processes of the same user can read it.
    command.args(arguments).arg(&program.folder).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(false);
    let mut child = command.spawn()?;
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Some(line) = lines.next_line().await? {
            match serde_json::from_str::<LauncherReply>(&line) {
                Ok(reply) if reply.pid.is_some() || reply.refused.is_some() => return Ok((child, reply)),
                _ => log::warn!("launcher output folder={} text={line}", program.folder.display()),
            }
        }
    }
    Ok((child, LauncherReply::default()))
}

/// Finds a program that an earlier agent started, or was about to start.
async fn find(program: &Program) -> Result<(Option<Child>, Started), ProgramReport> {
    let folder = &program.folder;
    let is_ours = program.record.borrow().boot != launch::proc::boot_id() || matches!(launch::claim(folder), Ok(Claim::Ours));
    if is_ours {
        return over_or_lost(program).await;
    }
    let deadline = Instant::now() + STARTING;
    loop {
        match launch::read::<Started>(folder, STATE) {
            Ok(Some(started)) if started.launcher.is_alive() => return Ok((None, started)),
            Ok(Some(started)) => {
                program.report.borrow_mut().pid = u32::try_from(started.program.pid).ok();
                return over_or_lost(program).await;
            }
            _ if Instant::now() > deadline => return over_or_lost(program).await,
            _ => tokio::time::sleep(TICK).await,
        }
    }
}

async fn over_or_lost(program: &Program) -> Result<(Option<Child>, Started), ProgramReport> {
    match ended(program) {
        Some(last) => Err(last),
        None => Err(lost(program).await),
    }
}

/// The launcher's final report, if it exists.
fn ended(program: &Program) -> Option<ProgramReport> {
    let ended: Ended = launch::read(&program.folder, EXIT).ok()??;
    Some(program.last(ProgramState::Exited, ended.at, None, Some(ended.exit)))
}

/// The launcher is gone: kills the remaining processes of the program.
async fn lost(program: &Program) -> ProgramReport {
    let of = program.record.borrow().order.program;
    let _ = tokio::task::spawn_blocking(move || launch::kill_marked(&of)).await;
    let error = refusal(ProgramErrorKind::Lost, "the agent or the launcher stopped, and the exit status of the program is unknown");
    program.last(ProgramState::Lost, Timestamp::now(), Some(error), None)
}

/// Forwards its output and the order to end, until it has ended.
async fn carry(program: &Program, teller: &mut Teller, mut child: Option<Child>, started: Started) -> ProgramReport {
    let mut told: Option<u64> = None;
    let mut untold_since: Option<Instant> = None;
    let mut ticks: u32 = 0;
    loop {
        let order = program.ending.borrow().clone();
        if let Some(order) = order.filter(|order| told.is_none_or(|grace| order.grace_ms < grace)) {
            match launch::write_durable(&program.folder, END, &order) {
                Ok(()) => told = Some(order.grace_ms),
                // Perhaps the program has filled the disk.
                Err(error) => {
                    let since = untold_since.get_or_insert_with(|| {
                        log::error!("cannot write the order to end a program folder={} error={error}", program.folder.display());
                        launch::ask_to_end(started.program);
                        Instant::now()
                    });
                    if since.elapsed() >= Duration::from_millis(order.grace_ms) {
                        launch::kill_launcher(started.launcher);
                    }
                }
            }
        }
        teller.tell();
        if let Some(last) = ended(program) {
            return last;
        }
        ticks = ticks.wrapping_add(1);
        if ticks.is_multiple_of(TICKS_OF_LIFE) && !started.launcher.is_alive() {
            // It may have written its last file between the two checks.
            return match ended(program) {
                Some(last) => last,
                None => lost(program).await,
            };
        }
        let launcher_ended = async {
            match &mut child {
                Some(child) => drop(child.wait().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = program.changed.notified() => {}
            () = tokio::time::sleep(TICK) => {}
            () = launcher_ended => {
                child = None;
                // Check at once.
                ticks = TICKS_OF_LIFE - 1;
            }
        }
    }
}
