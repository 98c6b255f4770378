//! The agent's identity: the node's id, created once and stored, so that the broker recognizes the machine; and an instance id of this
//! start, so that the broker can distinguish it from another agent with the same node id.

use super::AgentError;
use crate::config::agent::AgentConfig;
use crate::domain::ids::NodeId;
use crate::domain::node::Instance;
use crate::private;
use std::fs::{File, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use uuid::Uuid;

const FILE: &str = "node-id";
const INSTANCE_FILE: &str = "instance";
const LOCK_FILE: &str = "agent.lock";
/// How long a process that an agent was starting when it was killed may keep its lock.
const FORKED: Duration = Duration::from_secs(1);

/// The identity of this agent while it runs.
#[derive(Debug)]
pub struct NodeIdentity {
    /// The node's id.
    pub node_id: NodeId,
    /// The instance of this start.
    pub instance: Instance,
    /// Locks the data folder for this agent.
    _lock: Option<File>,
}

/// Resolves the node's id from the settings, the stored file, or a new one; and makes a new instance id for this start.
///
/// # Errors
/// Another agent uses the data folder; the stored text is not an id, or the file cannot be read or written.
pub fn resolve(config: &AgentConfig) -> Result<NodeIdentity, AgentError> {
    let Some(dir) = &config.data_dir else {
        let instance = Instance { id: Uuid::new_v4(), after: None };
        return Ok(NodeIdentity { node_id: config.node_id.unwrap_or_else(NodeId::random), instance, _lock: None });
    };
    let failed = |path: &Path, why: String| AgentError::NodeId { path: path.to_owned(), why };
    std::fs::create_dir_all(dir).map_err(|e| failed(dir, e.to_string()))?;
    let lock = lock(dir)?;
    let node_id = config.node_id.map_or_else(|| kept(dir), Ok)?;
    let path = dir.join(INSTANCE_FILE);
    // Missing, or half-written in a crash: then this start has no known predecessor.
    let after = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    let instance = Instance { id: Uuid::new_v4(), after };
    write(dir, INSTANCE_FILE, &instance.id.to_string()).map_err(|e| failed(&path, e.to_string()))?;
    Ok(NodeIdentity { node_id, instance, _lock: Some(lock) })
}

/// A lock of the operating system: it is released when the process dies.
fn lock(dir: &Path) -> Result<File, AgentError> {
    let path = dir.join(LOCK_FILE);
    let failed = |e: std::io::Error| AgentError::NodeId { path: path.clone(), why: e.to_string() };
    let file = private::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    let begin = Instant::now();
    let mut locked = file.try_lock();
    while matches!(locked, Err(TryLockError::WouldBlock)) && begin.elapsed() < FORKED {
        std::thread::sleep(FORKED / 20);
        locked = file.try_lock();
    }
    match locked {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(AgentError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(e)) => log::warn!("cannot lock the data folder, a second agent would not be detected error={e}"),
    }
    Ok(file)
}

fn kept(dir: &Path) -> Result<NodeId, AgentError> {
    let path = dir.join(FILE);
    let failed = |why: String| AgentError::NodeId { path: path.clone(), why };
    private::keep(&path);
    match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|e| failed(format!("{e}"))),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let id = NodeId::random();
            write(dir, FILE, &id.to_string()).map_err(|e| failed(e.to_string()))?;
            Ok(id)
        }
        Err(e) => Err(failed(e.to_string())),
    }
}

/// Writes a file atomically: a half-written id would prevent every later start.
fn write(dir: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let draft = dir.join(format!("{name}.draft"));
    let mut file = private::options().write(true).create(true).truncate(true).open(&draft)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    std::fs::rename(&draft, dir.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_once_and_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = AgentConfig { data_dir: Some(dir.path().join("new")), ..AgentConfig::default() };
        let first = resolve(&config).expect("made");
        let second = resolve(&config).expect_err("it is in use").to_string();
        let folder = dir.path().join("new");
        assert_eq!(second, format!("Another agent uses {}. Give each agent its own --data-dir.", folder.display()));
        let (id, instance) = (first.node_id, first.instance);
        drop(first);
        let again = resolve(&config).expect("kept");
        assert_eq!((again.node_id, again.instance.after), (id, Some(instance.id)), "it follows on the one before");
        drop(again);
        std::fs::write(folder.join(INSTANCE_FILE), "gar").expect("written");
        let given = AgentConfig { node_id: Some(NodeId::random()), ..config.clone() };
        let identity = resolve(&given).expect("given");
        assert_eq!((Some(identity.node_id), identity.instance.after), (given.node_id, None));
        drop(identity);
        std::fs::write(dir.path().join("new").join(FILE), "garbage").expect("written");
        assert!(resolve(&config).expect_err("no id").to_string().contains("node-id"));
        let none = AgentConfig::default();
        assert_ne!(resolve(&none).expect("new").node_id, resolve(&none).expect("another").node_id);
    }
}
