//! The node's id: made once and kept, so that the broker knows the machine again.

use super::AgentError;
use crate::config::agent::AgentConfig;
use crate::domain::ids::NodeId;
use std::io::{ErrorKind, Write};
use std::path::Path;

const FILE: &str = "node-id";

/// The id that the settings give, or that was kept, or a new one.
///
/// # Errors
/// What was kept is no id, or cannot be read or written.
pub fn resolve(config: &AgentConfig) -> Result<NodeId, AgentError> {
    match (config.node_id, &config.data_dir) {
        (Some(id), _) => Ok(id),
        (None, Some(dir)) => kept(dir),
        (None, None) => Ok(NodeId::random()),
    }
}

fn kept(dir: &Path) -> Result<NodeId, AgentError> {
    let path = dir.join(FILE);
    let failed = |why: String| AgentError::NodeId { path: path.clone(), why };
    match std::fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|e| failed(format!("{e}"))),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let id = NodeId::random();
            write(dir, &path, id).map_err(|e| failed(e.to_string()))?;
            Ok(id)
        }
        Err(e) => Err(failed(e.to_string())),
    }
}

/// Whole or not at all: a half-written id would keep the agent from ever starting again.
fn write(dir: &Path, path: &Path, id: NodeId) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    let draft = dir.join(format!("{FILE}.{id}"));
    let mut file = std::fs::File::create(&draft)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_made_once_and_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = AgentConfig { data_dir: Some(dir.path().join("new")), ..AgentConfig::default() };
        let first = resolve(&config).expect("made");
        assert_eq!(resolve(&config).expect("kept"), first);
        std::fs::write(dir.path().join("new").join(FILE), "garbage").expect("written");
        assert!(resolve(&config).expect_err("no id").to_string().contains("node-id"));
        let none = AgentConfig::default();
        assert_ne!(resolve(&none).expect("new"), resolve(&none).expect("another"));
    }
}
