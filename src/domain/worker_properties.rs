//! The properties of a block job that choose the worker of its runs.

use super::job::{InvalidProperty, Properties};
use super::settings::QueueSettings;
use super::task::{Strategy, TaskSettings};

impl Properties {
    /// Which worker gets a run of a block job, as the settings of a task: `WorkerGroup`, `WorkerVersion`, `WorkerTags`, `WorkerStrategy`,
    /// `WorkerKey`.
    pub(super) fn workers(&self) -> Result<TaskSettings, InvalidProperty> {
        let text = |key| self.get(key).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let mut out = QueueSettings::any_worker();
        (out.group, out.version, out.key) = (text("WorkerGroup"), text("WorkerVersion"), text("WorkerKey"));
        let tags = self.get("WorkerTags").unwrap_or_default().split(',').map(str::trim);
        out.tags = tags.filter(|tag| !tag.is_empty()).map(str::to_owned).collect();
        if let Some((key, word)) = self.entry("WorkerStrategy") {
            let known = Strategy::FOR_ONE.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(word.trim()));
            let (_, strategy) = known.ok_or_else(|| InvalidProperty {
                key: key.to_owned(),
                detail: format!("`{word}` is none of {}", Strategy::FOR_ONE.map(|(name, _)| name).join(", ")),
            })?;
            out.strategy = strategy;
        }
        out.check().map_err(|(member, detail)| {
            let keys = ["WorkerGroup", "WorkerVersion", "WorkerTags", "WorkerKey"];
            let key = keys.into_iter().find(|key| key.to_ascii_lowercase().ends_with(member)).unwrap_or("WorkerStrategy");
            InvalidProperty { key: self.entry(key).map_or(key, |(given, _)| given).to_owned(), detail }
        })?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_of_a_run_is_chosen_as_for_a_task() {
        let read = [("WORKER_GROUP", "red"), ("WorkerTags", "gpu, eu"), ("WorkerStrategy", "Hash"), ("WorkerKey", "/customer")];
        let read = Properties(read.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        let workers = TaskSettings {
            group: Some("red".into()),
            tags: vec!["gpu".into(), "eu".into()],
            strategy: Strategy::Hash,
            key: Some("/customer".into()),
            ..TaskSettings::default()
        };
        assert_eq!(read.workers(), Ok(workers));
    }
}
