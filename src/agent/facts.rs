//! The machine's figures that the agent reports.

use crate::domain::node::{MOST_NAME, is_name};
use sysinfo::System;

const MB: u64 = 1 << 20;

/// The machine's figures; the changing ones are as of the last [`Machine::refresh`].
pub struct Machine {
    // `None` on systems that are not supported: then the figures are 0.
    system: Option<System>,
}

/// The present load of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Load {
    /// Processor use, in percent of all processors.
    pub cpu: u32,
    /// Available memory, in MB.
    pub free_memory: u64,
}

impl Machine {
    /// Reads the figures for the first time; processor use needs a second reading.
    #[must_use]
    pub fn new() -> Self {
        let mut machine = Self { system: System::new().ok() };
        machine.refresh();
        machine
    }

    /// Reads the changing figures: two small files on Linux.
    pub fn refresh(&mut self) -> Load {
        let Some(system) = &mut self.system else { return Load::default() };
        system.refresh_memory();
        system.refresh_cpu_usage();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a percentage")]
        let cpu = system.global_cpu_usage().round() as u32;
        Load { cpu, free_memory: system.available_memory() / MB }
    }

    /// Total memory, in MB.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.system.as_ref().map_or(0, System::total_memory) / MB
    }

    /// The host name, shortened to what the broker accepts.
    #[must_use]
    pub fn host_name() -> Option<String> {
        let name: String = System::host_name().ok()?.chars().filter(|c| !c.is_control()).take(MOST_NAME).collect();
        is_name(&name).then_some(name)
    }

    /// Number of processors that this process may use.
    #[must_use]
    pub fn processors() -> u32 {
        std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX))
    }

    /// `linux`, `windows`, `macos` …: matched with the job property `Os`.
    #[must_use]
    pub fn operating_system() -> &'static str {
        std::env::consts::OS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_possible() {
        let mut machine = Machine::new();
        let load = machine.refresh();
        assert!(machine.memory() > 0 && load.free_memory > 0 && load.free_memory <= machine.memory());
        assert!(load.cpu <= 100 && Machine::processors() > 0);
    }
}
