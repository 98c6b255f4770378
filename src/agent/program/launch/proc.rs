//! Processes as `/proc` shows them.

use crate::protocol::application::ProgramRef;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A process. Its start time distinguishes it from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: i32,
    /// Its start time, in ticks since the boot of the machine.
    pub start: u64,
}

impl Process {
    /// The process that has this number now.
    #[must_use]
    pub fn now(pid: i32) -> Option<Self> {
        stat(pid).map(|stat| Self { pid, start: stat.start })
    }

    /// Whether it is running, and not a zombie.
    #[must_use]
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.start == self.start && !matches!(stat.state, 'Z' | 'X'))
    }
}

struct Stat {
    state: char,
    parent: i32,
    start: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    // The name in brackets may contain anything, even brackets and blanks: parse after the last bracket.
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, parent: fields.next()?.parse().ok()?, start: fields.nth(17)?.parse().ok()? })
}

fn all() -> impl Iterator<Item = i32> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// All living descendants of a process.
#[must_use]
pub fn descendants(ancestor: i32) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for pid in all() {
        if let Some(stat) = stat(pid)
            && !matches!(stat.state, 'Z' | 'X')
        {
            children.entry(stat.parent).or_default().push(pid);
        }
    }
    let (mut found, mut open) = (BTreeSet::new(), vec![ancestor]);
    while let Some(pid) = open.pop() {
        for &child in children.get(&pid).into_iter().flatten() {
            if found.insert(child) {
                open.push(child);
            }
        }
    }
    found
}

/// The environment variables that identify a program's processes anywhere in the process tree.
#[must_use]
pub fn mark(program: &ProgramRef) -> [String; 3] {
    [
        format!("WEBLOOM_RUN_ID={}", program.identity),
        format!("WEBLOOM_INSTANCE={}", program.instance),
        format!("WEBLOOM_ATTEMPT={}", program.attempt),
    ]
}

/// All living processes whose initial environment contains these variables.
#[must_use]
pub fn marked(mark: &[String; 3]) -> BTreeSet<i32> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    all().filter(|&pid| pid != own && is_marked(pid, mark)).collect()
}

fn is_marked(pid: i32, mark: &[String; 3]) -> bool {
    let Ok(environ) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    mark.iter().all(|wanted| environ.split(|&b| b == 0).any(|pair| pair == wanted.as_bytes()))
}

/// Resident bytes of a process, and their maximum so far.
#[must_use]
pub fn memory(pid: i32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kb| kb << 10)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// An id that changes at each boot of the machine.
#[must_use]
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_knows_itself_and_a_reused_number_is_told_apart() {
        let own = Process::now(i32::try_from(std::process::id()).expect("small")).expect("alive");
        assert!(own.is_alive());
        assert!(!Process { start: own.start + 1, ..own }.is_alive());
        assert!(memory(own.pid).is_some_and(|(now, most)| 0 < now && now <= most));
        assert!(!boot_id().is_empty());
    }
}
