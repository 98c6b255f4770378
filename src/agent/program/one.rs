//! A program in the agent's memory.

use super::launch::EndOrder;
use super::record::Record;
use crate::domain::time::Timestamp;
use crate::protocol::application::{ProgramError, ProgramExit, ProgramReport, ProgramState};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use tokio::sync::Notify;

/// One program. Other modules of the agent write its fields, and its own task reads them.
pub struct Program {
    /// Its record on disk.
    pub record: RefCell<Record>,
    /// Its folder.
    pub folder: PathBuf,
    /// Its current report.
    pub report: RefCell<ProgramReport>,
    /// The order to end, once there is one.
    pub ending: RefCell<Option<EndOrder>>,
    /// The first line of its output that the broker has not stored.
    pub taken: Cell<u64>,
    /// The broker has acknowledged nothing new: lines were lost on their way to the actor of the run.
    pub lacks_lines: Cell<bool>,
    /// The session in which its end was reported; 0: none.
    pub said_in: Cell<u64>,
    /// Whether the broker has acknowledged its end.
    pub is_settled: Cell<bool>,
    /// Signals a change of this state.
    pub changed: Notify,
}

impl Program {
    /// From its record.
    pub fn new(record: Record, folder: PathBuf) -> Self {
        let accepted = ProgramReport {
            program: record.order.program,
            state: ProgramState::Accepted,
            at: Timestamp::now(),
            error: None,
            pid: None,
            exit: None,
        };
        Self {
            report: RefCell::new(record.last.clone().unwrap_or(accepted)),
            record: RefCell::new(record),
            folder,
            ending: RefCell::default(),
            taken: Cell::default(),
            lacks_lines: Cell::default(),
            said_in: Cell::default(),
            is_settled: Cell::default(),
            changed: Notify::new(),
        }
    }

    /// Whether it has ended, or will never start.
    pub fn is_over(&self) -> bool {
        matches!(self.report.borrow().state, ProgramState::Exited | ProgramState::Refused | ProgramState::Lost)
    }

    /// Requests its end. Only a shorter grace than before has an effect.
    pub fn end(&self, grace_ms: u64, by: &str) {
        let mut ending = self.ending.borrow_mut();
        match &mut *ending {
            Some(order) => order.grace_ms = order.grace_ms.min(grace_ms),
            None => *ending = Some(EndOrder { grace_ms, by: by.to_owned() }),
        }
        self.changed.notify_one();
    }

    /// Waits for an order to end.
    pub async fn asked_to_end(&self) -> EndOrder {
        loop {
            if let Some(order) = self.ending.borrow().clone() {
                return order;
            }
            self.changed.notified().await;
        }
    }

    /// The report of a program that has ended.
    pub fn last(&self, state: ProgramState, at: Timestamp, error: Option<ProgramError>, exit: Option<ProgramExit>) -> ProgramReport {
        let report = self.report.borrow();
        ProgramReport { program: report.program, state, at, error, pid: report.pid, exit }
    }
}
