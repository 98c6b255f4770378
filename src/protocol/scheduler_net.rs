//! The dialect of Scheduler.NET: its requests and responses, and the mapping of its jobs.
//!
//! Based on the source of `zlzforever/Scheduler.NET`, commit 605a20b (2018). Its two generations of clients read different members of a
//! response, so both are present.

use super::api::{JobInput, JobTypeInput};
use super::parser_errors::why_not_json;
use super::problem::Problem;
use crate::domain::callback::Callback;
use crate::domain::ids::JobId;
use crate::domain::job::{Job, limits};
use crate::domain::schedule::{Overlap, Policies, Retry, Schedule};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Maximum characters of a name and of a group in Scheduler.NET.
const MOST_NAME: usize = 100;
/// Properties that store data without another place in a job here.
const ID: &str = "SchedulerNetId";
const NAME: &str = "SchedulerNetName";
const GROUP: &str = "SchedulerNetGroup";

/// The two kinds of its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// For clients that watch a class: a block job here, whose fires go to one of the workers that watch the class.
    Client,
    /// An HTTP request.
    Callback,
}

/// A job as clients of Scheduler.NET send it.
#[derive(Debug, Clone, Default, PartialEq, Eq, schemars::JsonSchema)]
#[schemars(rename = "SchedulerNetJob", rename_all = "PascalCase")]
pub struct JobBody {
    /// Any text; created if it is absent.
    pub id: Option<String>,
    /// The group of clients.
    pub group: Option<String>,
    /// The name, which is not unique in Scheduler.NET.
    pub name: String,
    /// A cron expression of five fields.
    pub cron: String,
    /// Data for the worker, or the body of the request. Older clients call it `Data`.
    pub content: Option<String>,
    /// The URL of a callback.
    pub url: Option<String>,
    /// The method of a callback. Older clients omit it: then it is a GET without a body.
    pub method: Option<String>,
}

/// A success, as HTTP 200.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[schemars(rename = "SchedulerNetDone")]
pub struct Done {
    /// 100.
    pub code: u16,
    /// For clients of the later generation.
    pub success: bool,
    /// For clients of the earlier one.
    pub status: &'static str,
    /// Always empty.
    pub message: &'static str,
    /// The id of the job, or of the run.
    pub data: Option<String>,
}

impl Done {
    /// A success with this data.
    #[must_use]
    pub fn of(data: Option<String>) -> Self {
        Self { code: 100, success: true, status: "Success", message: "success", data }
    }
}

/// A failure, as HTTP 206.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "PascalCase")]
#[schemars(rename = "SchedulerNetRefused")]
pub struct Refused {
    /// 101 with a reason for the caller; 102: see the broker's log.
    pub code: u16,
    /// Always false.
    pub success: bool,
    /// The same for clients of the earlier generation, whose default is *Success*.
    pub status: &'static str,
    /// Why.
    pub message: String,
    /// Always absent.
    pub data: Option<String>,
}

impl Refused {
    /// Converts a problem to this dialect.
    #[must_use]
    pub fn of(problem: &Problem) -> Self {
        let (code, message) = match (problem.status, &problem.field) {
            (401 | 403, _) => (101, "auth denied".to_owned()),
            (500.., _) => (102, "internal error".to_owned()),
            (_, Some(field)) => (101, format!("{field}: {}", problem.detail)),
            (_, None) => (101, problem.detail.clone()),
        };
        Self { code, success: false, status: "Error", message, data: None }
    }
}

/// The id of the job here: the text itself if it is one of our ids, otherwise 128 bits of its hash.
#[must_use]
pub fn job_id(text: &str) -> JobId {
    text.parse().unwrap_or_else(|_| {
        let hash = Sha256::digest(format!("scheduler.net\n{text}"));
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        JobId(Uuid::from_bytes(bytes))
    })
}

fn lower_keys(map: Map<String, Value>) -> BTreeMap<String, Value> {
    map.into_iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.to_ascii_lowercase(), value)).collect()
}

impl JobBody {
    /// Parses a body. Member names are compared without case.
    ///
    /// # Errors
    /// It is not a JSON object, or a member does not match its type; then the problem names it.
    pub fn read(body: &[u8]) -> Result<Self, Problem> {
        let map: Map<String, Value> =
            serde_json::from_slice(body).map_err(|e| Problem::malformed(format!("cannot parse the job: {}", why_not_json(&e))))?;
        let mut map = lower_keys(map);
        let mut text = |name: &str| match map.remove(&name.to_ascii_lowercase()) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
            // .NET's class of HTTP methods is serialized as an object.
            Some(Value::Object(inner)) if name == "Method" => {
                Ok(lower_keys(inner).remove("method").and_then(|method| method.as_str().map(str::to_owned)))
            }
            Some(_) => Err(Problem::invalid(name, "a text is expected")),
        };
        let data = text("Data")?;
        let out = Self {
            id: text("Id")?,
            group: text("Group")?,
            name: text("Name")?.unwrap_or_default(),
            cron: text("Cron")?.unwrap_or_default(),
            content: text("Content")?.or(data),
            url: text("Url")?,
            method: text("Method")?,
        };
        for (name, value) in [("Name", &out.name), ("Cron", &out.cron)] {
            if value.trim().is_empty() {
                return Err(Problem::invalid(name, "it is required"));
            }
        }
        for (name, value) in [("Id", out.id.as_ref()), ("Group", out.group.as_ref()), ("Name", Some(&out.name))] {
            if value.is_some_and(|value| value.chars().count() > MOST_NAME) {
                return Err(Problem::invalid(name, format!("must be at most {MOST_NAME} characters")));
            }
        }
        Ok(out)
    }

    /// Whether its cron expression means *do not schedule*.
    #[must_use]
    pub fn is_ignored(&self, ignored: &[String]) -> bool {
        let fields = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        ignored.iter().any(|cron| fields(cron) == fields(&self.cron))
    }

    /// Names to try, best first: names here are unique and shorter.
    #[must_use]
    pub fn names(&self, id: JobId, stored: Option<&Job>) -> Vec<String> {
        if let Some(job) = stored.filter(|job| job.properties.get(NAME) == Some(&self.name)) {
            return vec![job.name.clone()];
        }
        let cut = |most: usize| self.name.chars().take(most).collect::<String>();
        let suffix = &id.to_string()[24..];
        vec![cut(limits::NAME), format!("{}-{suffix}", cut(limits::NAME - 9))]
    }

    /// Converts it to a job with this name. Other data of `stored` stays unchanged.
    ///
    /// # Errors
    /// A callback without a URL.
    pub fn input(&self, kind: Kind, id: JobId, name: String, zone: &str, stored: Option<&Job>) -> Result<JobInput, Problem> {
        let mut properties = stored.map(|job| job.properties.0.clone()).unwrap_or_default();
        let mut put = |key: &str, value: Option<&String>| match value {
            Some(value) => drop(properties.insert(key.to_owned(), value.clone())),
            None => drop(properties.remove(key)),
        };
        put(NAME, Some(&self.name));
        put(GROUP, self.group.as_ref());
        if let Some(text) = &self.id {
            put(ID, Some(text));
        }
        let schedule = Schedule { zone: Some(zone.to_owned()), ..Schedule::of_cron(self.cron.trim()) };
        let mut input = JobInput {
            id: Some(id),
            name: Some(name),
            job_type: Some(JobTypeInput::Name(if kind == Kind::Client { "block" } else { "callback" }.to_owned())),
            schedule: Some(schedule),
            group: Some(self.group.clone().filter(|group| group.chars().count() <= limits::NAME).unwrap_or_default()),
            ..JobInput::default()
        };
        if kind == Kind::Client {
            put("FullClassName", Some(&self.name));
            put("Arguments", self.content.as_ref());
        } else {
            let url = self.url.clone().ok_or_else(|| Problem::invalid("Url", "it is required"))?;
            let before = stored.and_then(|job| job.callback.clone()).unwrap_or_default();
            let body = self.content.clone().filter(|_| self.method.is_some());
            let method = Some(self.method.clone().unwrap_or_else(|| "GET".to_owned()));
            put("FullClassName", None);
            input.callback = Some(Callback { url, method, body, ..before });
            input.policies = stored.is_none().then(as_there);
        }
        input.properties = Some(properties);
        Ok(input)
    }
}

/// The behaviour of a callback in Scheduler.NET: a failed one is retried ten times, with growing pauses, and fires do not wait for one
/// another; a request has .NET's timeout of 100 s.
fn as_there() -> Policies {
    Policies {
        overlap: Some(Overlap::Allow),
        retry: Retry { limit: 10, delay: 15_000, factor: 2.0, max_delay: 3_600_000, jitter: 0.1 },
        timeout: Some(100_000),
        ..Policies::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_read_without_case() {
        let bodies = [
            r#"{"Id":"a","Group":"g","Name":"n","Cron":"* * * * *","Content":"c","Url":"http://x/","Method":{"Method":"POST"}}"#,
            r#"{"ID":"a","gROUP":"g","name":"n","cron":"* * * * *","data":"c","url":"http://x/","method":"POST","more":1}"#,
        ];
        let [a, b] = bodies.map(|body| JobBody::read(body.as_bytes()).expect("a job"));
        assert_eq!(a, b);
        assert_eq!((a.method.as_deref(), a.content.as_deref()), (Some("POST"), Some("c")));
        for bad in ["", "[]", "{}", r#"{"name":"n"}"#, r#"{"name":" ","cron":"x"}"#, r#"{"name":1,"cron":"x"}"#] {
            assert!(JobBody::read(bad.as_bytes()).is_err(), "{bad}");
        }
        let long = format!(r#"{{"name":"{}","cron":"x"}}"#, "n".repeat(101));
        assert_eq!(JobBody::read(long.as_bytes()).expect_err("too long").field.as_deref(), Some("Name"));
    }

    #[test]
    fn ids_and_names_fit() {
        let id = JobId::random();
        assert_eq!(job_id(&id.to_string().to_uppercase()), id);
        assert_eq!(job_id("mine"), job_id("mine"));
        assert_ne!(job_id("mine"), job_id("yours"));
        let body = JobBody { name: "\u{e9}".repeat(90), cron: " *  * * * 2999 ".to_owned(), ..JobBody::default() };
        let names = body.names(id, None);
        assert!(names.iter().all(|name| name.chars().count() == limits::NAME) && names[1].ends_with(&id.to_string()[24..]));
        assert!(body.is_ignored(&["* * * * 2999".to_owned()]) && !body.is_ignored(&["* * * * *".to_owned()]));
    }

    #[test]
    fn problems_become_two_codes() {
        let of = |problem: Problem| {
            let refused = Refused::of(&problem);
            (refused.code, refused.message)
        };
        assert_eq!(of(Problem::unauthorized()), (101, "auth denied".to_owned()));
        assert_eq!(of(Problem::forbidden("x")), (101, "auth denied".to_owned()));
        assert_eq!(of(Problem::invalid("Url", "bad")), (101, "Url: bad".to_owned()));
        assert_eq!(of(Problem::internal()), (102, "internal error".to_owned()));
        assert_eq!(of(Problem::busy("x")), (102, "internal error".to_owned()));
    }
}
