//! A program as the agent knows it.

use super::launch::EndOrder;
use super::record::Record;
use crate::domain::time::Timestamp;
use crate::protocol::application::{ProgramError, ProgramExit, ProgramReport, ProgramState};
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use tokio::sync::Notify;

/// One program. What happens to it is written here by the rooms of the agent, and looked at by its own task.
pub struct Program {
    /// What is kept of it.
    pub record: RefCell<Record>,
    /// Where it lies.
    pub folder: PathBuf,
    /// Where it is.
    pub report: RefCell<ProgramReport>,
    /// The order to end, once there is one.
    pub ending: RefCell<Option<EndOrder>>,
    /// The first line of its output that the broker does not have.
    pub taken: Cell<u64>,
    /// The session in which its end was said; 0: in none.
    pub said_in: Cell<u64>,
    /// The broker has taken its end.
    pub is_settled: Cell<bool>,
    /// Something of this has changed.
    pub changed: Notify,
}

impl Program {
    /// As its record has it.
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
            said_in: Cell::default(),
            is_settled: Cell::default(),
            changed: Notify::new(),
        }
    }

    /// Whether it is over, or will never be.
    pub fn is_over(&self) -> bool {
        matches!(self.report.borrow().state, ProgramState::Exited | ProgramState::Refused | ProgramState::Lost)
    }

    /// Wants it to end. Only a shorter grace than before makes a difference.
    pub fn end(&self, grace_ms: u64, by: &str) {
        let mut ending = self.ending.borrow_mut();
        match &mut *ending {
            Some(order) => order.grace_ms = order.grace_ms.min(grace_ms),
            None => *ending = Some(EndOrder { grace_ms, by: by.to_owned() }),
        }
        self.changed.notify_one();
    }

    /// Waits for the order to end.
    pub async fn asked_to_end(&self) -> EndOrder {
        loop {
            if let Some(order) = self.ending.borrow().clone() {
                return order;
            }
            self.changed.notified().await;
        }
    }

    /// The report of a program that is over.
    pub fn last(&self, state: ProgramState, at: Timestamp, error: Option<ProgramError>, exit: Option<ProgramExit>) -> ProgramReport {
        let report = self.report.borrow();
        ProgramReport { program: report.program, state, at, error, pid: report.pid, exit }
    }
}
