//! The dialect of scrapyd: its requests and responses, and the mapping of its projects to jobs.
//!
//! Based on scrapyd 1.6. A version of a project is an application job in the group [`GROUP`]; its package is the egg. A spider run is a
//! run of this job, and its arguments are a [`SpiderOrder`]. A run without arguments lists the spiders of the egg.

use super::api::{JobInput, JobTypeInput};
use super::problem::Problem;
use crate::domain::ids::{Identity, JobId};
use crate::domain::job::{Job, Properties, limits};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The group of the jobs.
pub const GROUP: &str = "scrapyd";
/// The program that runs an egg on a node. The Python package installs it.
const PROGRAM: &str = "webloom-scrapy";
/// The beginning of the line with the spiders of an egg, as JSON.
pub const SPIDERS_LINE: &str = "webloom-scrapy spiders: ";
/// Finished runs in a list, as in scrapyd.
pub const MOST_FINISHED: usize = 100;
/// The longest name of a project or version, in characters.
const MOST_NAME: usize = 200;
/// Properties that store data without another place in a job.
const PROJECT: &str = "ScrapydProject";
const VERSION: &str = "ScrapydVersion";
const SPIDERS: &str = "ScrapydSpiders";

/// The fields of a form, in the order in which they were sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(pub Vec<(String, String)>);

impl Fields {
    /// The first value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first value of a required field.
    ///
    /// # Errors
    /// The field is missing.
    pub fn required(&self, name: &str) -> Result<&str, Problem> {
        self.get(name).ok_or_else(|| Problem::invalid(name, format!("'{name}' parameter is required")))
    }

    /// The name of a project or a version.
    ///
    /// # Errors
    /// The field is missing, or is not a name.
    pub fn name(&self, name: &str) -> Result<&str, Problem> {
        let text = self.required(name)?;
        let length = text.chars().count();
        if length == 0 || length > MOST_NAME || text.chars().any(char::is_control) {
            let detail = format!("{name} is invalid: expected 1 to {MOST_NAME} characters without control characters");
            return Err(Problem::invalid(name, detail));
        }
        Ok(text)
    }
}

/// The arguments of a spider run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpiderOrder {
    /// The project.
    pub project: String,
    /// The spider.
    pub spider: String,
    /// The job id of scrapyd: any text.
    pub job: String,
    /// The version, if the client named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Arguments of the spider.
    pub arguments: BTreeMap<String, String>,
    /// Settings of Scrapy.
    pub settings: BTreeMap<String, String>,
}

impl SpiderOrder {
    /// Reads the fields of `schedule.json`; `job` is the default of the job id. Also returns the priority.
    ///
    /// # Errors
    /// A field is missing or invalid.
    pub fn of(fields: &Fields, job: String) -> Result<(Self, Option<i32>), Problem> {
        let mut order = Self {
            project: fields.name("project")?.to_owned(),
            spider: fields.required("spider")?.to_owned(),
            job: fields.get("jobid").map_or(job, str::to_owned),
            version: fields.get("_version").filter(|text| !text.is_empty()).map(str::to_owned),
            ..Self::default()
        };
        let priority = fields.get("priority").map(|text| {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            // A priority outside of the range of the broker is the highest or the lowest one.
            number
                .map(|number| number as i32)
                .ok_or_else(|| Problem::invalid("priority", format!("priority is invalid: `{text}` is not a number")))
        });
        for (name, value) in &fields.0 {
            match name.as_str() {
                "project" | "spider" | "jobid" | "_version" | "priority" => {}
                "setting" => {
                    let detail = || format!("setting is invalid: expected NAME=VALUE, not `{value}`");
                    let (name, value) = value.split_once('=').ok_or_else(|| Problem::invalid("setting", detail()))?;
                    order.settings.insert(name.to_owned(), value.to_owned());
                }
                // As in scrapyd, the first value of an argument counts.
                _ => drop(order.arguments.entry(name.clone()).or_insert_with(|| value.clone())),
            }
        }
        Ok((order, priority.transpose()?))
    }

    /// Reads the arguments of a run; `None`: the run does not run a spider.
    #[must_use]
    pub fn of_run(arguments: Option<&str>, identity: Identity) -> Option<Self> {
        let mut order: Self = serde_json::from_str(arguments?).ok()?;
        if order.job.is_empty() {
            order.job = identity.to_string();
        }
        (!order.spider.is_empty()).then_some(order)
    }
}

/// A stored version of a project.
#[derive(Debug, Clone)]
pub struct Version {
    /// Its job.
    pub job: JobId,
    /// The project.
    pub project: String,
    /// The version.
    pub version: String,
    /// The properties of the job.
    pub properties: Properties,
    /// The version of the job.
    pub job_version: i64,
}

impl Version {
    /// Reads a job; `None`: it is not one of scrapyd.
    #[must_use]
    pub fn of(job: Job) -> Option<Self> {
        let text = |key| job.properties.get(key).map(str::to_owned);
        let (project, version) = (text(PROJECT)?, text(VERSION)?);
        Some(Self { job: job.id, project, version, properties: job.properties, job_version: job.version })
    }

    /// The job of a version.
    #[must_use]
    pub fn input(project: &str, version: &str, package: &str) -> JobInput {
        let properties = [
            (PROJECT, project),
            (VERSION, version),
            ("Package", package),
            ("Application", PROGRAM),
            ("Arguments", "{arguments}"),
            // scrapyd keeps a job until there is room for it, and does not measure the machine.
            ("NoNode", "wait"),
            ("MaxCpu", "101"),
        ];
        JobInput {
            name: Some(job_name(project, version)),
            job_type: Some(JobTypeInput::Name("application".to_owned())),
            group: Some(GROUP.to_owned()),
            properties: Some(properties.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()),
            ..JobInput::default()
        }
    }

    /// The address of its egg.
    #[must_use]
    pub fn package(&self) -> Option<&str> {
        self.properties.get("Package")
    }

    /// The spiders, if a node has listed them.
    #[must_use]
    pub fn spiders(&self) -> Option<Vec<String>> {
        self.properties.get(SPIDERS)?;
        let parts = (0..).map_while(|nth| self.properties.get(&spiders_key(nth)));
        Some(parts.flat_map(str::lines).map(str::to_owned).collect())
    }

    /// The change of the job that gives it another egg. Settings that people made stay.
    #[must_use]
    pub fn with_package(&self, package: &str) -> JobInput {
        let mut properties = self.properties.clone();
        properties.0.retain(|key, _| !key.starts_with(SPIDERS));
        properties.put("Package", Some(package.to_owned()));
        JobInput { properties: Some(properties.0), ..JobInput::default() }
    }

    /// The change of the job that stores its spiders. It is rejected if the job was changed since it was read.
    ///
    /// # Errors
    /// There are too many for the properties of a job.
    pub fn with_spiders(&self, spiders: &[String]) -> Result<JobInput, Problem> {
        let mut properties = self.properties.0.clone();
        properties.retain(|key, _| !key.starts_with(SPIDERS));
        let mut parts = vec![String::new()];
        for spider in spiders {
            let part = parts.last_mut().filter(|part| part.chars().count() + spider.chars().count() < limits::VALUE);
            match part {
                Some(part) => part.push_str(&format!("{spider}\n")),
                None => parts.push(format!("{spider}\n")),
            }
        }
        if properties.len() + parts.len() > limits::PROPERTIES || parts.iter().any(|part| part.chars().count() > limits::VALUE) {
            return Err(Problem::invalid("egg", "the egg has too many spiders, or their names are too long"));
        }
        properties.extend(parts.into_iter().enumerate().map(|(nth, part)| (spiders_key(nth), part)));
        Ok(JobInput { properties: Some(properties), version: Some(self.job_version), ..JobInput::default() })
    }

    /// The place of a version among the others: its numbers count as numbers, so 1.10 is after 1.9.
    #[must_use]
    pub fn order(version: &str) -> Vec<VersionPart> {
        let mut parts = Vec::new();
        let mut rest = version;
        while let Some(first) = rest.chars().next() {
            let is_digit = first.is_ascii_digit();
            let end = rest.find(|c: char| c.is_ascii_digit() != is_digit).unwrap_or(rest.len());
            let (part, after) = rest.split_at(end);
            parts.push(part.parse().map_or_else(|_| VersionPart::Text(part.to_owned()), VersionPart::Number));
            rest = after;
        }
        parts
    }
}

/// A part of a version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum VersionPart {
    /// Other characters.
    Text(String),
    /// Digits.
    Number(u128),
}

fn spiders_key(nth: usize) -> String {
    if nth == 0 { SPIDERS.to_owned() } else { format!("{SPIDERS}{}", nth + 1) }
}

/// The name of the job of a version. A name that would be too long ends with a hash instead.
#[must_use]
pub fn job_name(project: &str, version: &str) -> String {
    let name = format!("scrapyd {project} {version}");
    if name.chars().count() <= limits::NAME && name.trim() == name {
        return name;
    }
    let mut hash = Sha256::new();
    hash.update([project.as_bytes(), &[0], version.as_bytes()].concat());
    let hash: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let begin: String = name.chars().take(limits::NAME - hash.len() - 1).collect();
    format!("{} {hash}", begin.trim_end())
}

/// The state of a run in scrapyd's words.
#[must_use]
pub fn state_of(state: RunState) -> &'static str {
    match state {
        RunState::Pending | RunState::Scheduled => "pending",
        RunState::Running => "running",
        RunState::Failed | RunState::Success | RunState::Stopped => "finished",
    }
}

/// A time as scrapyd writes it, in UTC.
#[must_use]
pub fn time(at: Option<Timestamp>) -> Option<String> {
    at.map(|at| at.to_string().replace('T', " ").replace('Z', ""))
}

/// A response. Members that a call does not have are absent.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
#[schemars(rename = "ScrapydAnswer")]
pub struct Answer {
    /// `ok` or `error`.
    pub status: String,
    /// Always `webloom`.
    pub node_name: String,
    /// What is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The other members.
    #[serde(flatten)]
    pub members: serde_json::Map<String, serde_json::Value>,
}

impl Answer {
    /// A success with these members.
    #[must_use]
    pub fn ok(members: serde_json::Value) -> Self {
        let members = match members {
            serde_json::Value::Object(members) => members,
            _ => serde_json::Map::new(),
        };
        Self { status: "ok".to_owned(), node_name: "webloom".to_owned(), message: None, members }
    }

    /// An error.
    #[must_use]
    pub fn error(message: String) -> Self {
        Self { status: "error".to_owned(), message: Some(message), ..Self::ok(serde_json::Value::Null) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn what_scrapyd_does_not_know_is_an_argument_of_the_spider() {
        let (order, priority) = SpiderOrder::of(
            &fields(&[
                ("project", "shop"),
                ("spider", "pages"),
                ("setting", "DEPTH_LIMIT=2"),
                ("setting", "FEEDS={\"a=b\": {}}"),
                ("url", "http://a/"),
                ("url", "http://b/"),
                ("priority", "1.5"),
                ("_version", "3"),
            ]),
            "j1".to_owned(),
        )
        .expect("an order");
        assert_eq!((order.project.as_str(), order.spider.as_str(), order.job.as_str()), ("shop", "pages", "j1"));
        assert_eq!((order.arguments.len(), order.arguments["url"].as_str(), priority), (1, "http://a/", Some(1)));
        assert_eq!(order.settings["FEEDS"], "{\"a=b\": {}}");
        let text = serde_json::to_string(&order).expect("JSON");
        assert_eq!(SpiderOrder::of_run(Some(&text), Identity(uuid::Uuid::nil())), Some(order));
    }

    #[test]
    fn an_error_has_the_words_of_scrapyd() {
        let detail = |pairs: &[(&str, &str)]| SpiderOrder::of(&fields(pairs), String::new()).expect_err("an error").detail;
        assert_eq!(detail(&[("spider", "a")]), "'project' parameter is required");
        assert_eq!(detail(&[("project", "a")]), "'spider' parameter is required");
        assert!(detail(&[("project", "a"), ("spider", "b"), ("setting", "x")]).starts_with("setting is invalid"));
        assert!(detail(&[("project", "a"), ("spider", "b"), ("priority", "high")]).starts_with("priority is invalid"));
        assert!(detail(&[("project", ""), ("spider", "b")]).starts_with("project is invalid"));
    }

    #[test]
    fn a_run_by_hand_needs_only_the_spider() {
        let identity = Identity(uuid::Uuid::nil());
        let order = SpiderOrder::of_run(Some(r#"{"spider": "pages"}"#), identity).expect("an order");
        assert_eq!((order.spider.as_str(), order.job), ("pages", identity.to_string()));
        for none in [None, Some("{arguments}"), Some("{}"), Some("text")] {
            assert_eq!(SpiderOrder::of_run(none, identity), None, "{none:?}");
        }
    }

    #[test]
    fn versions_are_sorted_by_their_numbers() {
        let mut versions = ["1.10", "r9", "1.9", "1700000000", "1.9.1", "r10"];
        versions.sort_by_key(|version| Version::order(version));
        assert_eq!(versions, ["r9", "r10", "1.9", "1.9.1", "1.10", "1700000000"]);
    }

    #[test]
    fn long_names_differ_too() {
        let long = "p".repeat(100);
        let (a, b) = (job_name(&long, "1"), job_name(&long, "2"));
        assert!(a != b && a.chars().count() <= limits::NAME, "{a} {b}");
        assert_eq!(job_name("shop", "1"), "scrapyd shop 1");
    }

    #[test]
    fn many_spiders_fit() {
        let input = Version::input("shop", "1", "/api/v1/packages/x");
        let properties = Properties(input.properties.expect("properties"));
        let job = JobId(uuid::Uuid::nil());
        let mut version = Version { job, project: "shop".to_owned(), version: "1".to_owned(), properties, job_version: 1 };
        assert_eq!(version.spiders(), None);
        for count in [0, 3, 5_000] {
            let spiders: Vec<String> = (0..count).map(|n| format!("spider-{n}")).collect();
            version.properties = Properties(version.with_spiders(&spiders).expect("it fits").properties.expect("properties"));
            assert_eq!(version.spiders(), Some(spiders));
        }
    }
}
