//! Which calls are audited, and what is recorded of them. Bodies are not: only the names of their members.

use super::Edge;
use super::access::Access;
use super::auth::{Caller, Need};
use super::route::Operation;
use crate::protocol::problem::Problem;
use crate::service::AuditedCall;
use actix_web::http::header::{HeaderMap, LOCATION};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// Maximum characters of a recorded value.
const MOST: usize = 200;

/// The parts of addresses that name the object of a call; the first that is there counts.
const OBJECTS: [&str; 4] = ["hook", "id", "name", "sha256"];

/// An audited operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Audited {
    operation: &'static str,
    kind: &'static str,
}

/// Marks a request whose body's members are recorded.
#[derive(Debug, Clone, Default)]
struct Members(Option<String>);

/// A call in progress.
pub(super) struct Call(String);

impl Audited {
    /// `None`: the operation changes nothing, belongs to the work of nodes and workers, or is stored with the run that it makes.
    pub(super) fn of(operation: &Operation, path: &'static str) -> Option<Self> {
        // The calls of Scheduler.NET's clients check their tokens themselves: those of an admin.
        let need = if matches!(operation.access, Access::By { need: None, .. }) { Need::Admin } else { operation.access.need()? };
        let changes = operation.method != Method::GET || operation.only_leader && need != Need::Read;
        let is_of_people = matches!(need, Need::Operate | Need::Edit | Need::Admin);
        (changes && is_of_people && !operation.is_recorded_in_its_run).then(|| Self { operation: operation.name, kind: kind(path) })
    }

    pub(super) fn begin(self, edge: &Edge, request: &HttpRequest) -> Result<Call, Problem> {
        let caller = request.extensions().get::<Caller>().cloned().unwrap_or_default();
        let path = request.match_info();
        let object = OBJECTS.iter().find_map(|part| path.get(part)).map(short);
        let forwarded_for = forwarded_for(request.headers());
        request.extensions_mut().insert(Members::default());
        let id = edge.service.audit_begin(AuditedCall {
            role: caller.role_name(),
            caller: caller.name,
            address: request.peer_addr().map(|address| address.ip().to_string()),
            forwarded_for,
            operation: self.operation,
            kind: self.kind,
            object,
        })?;
        Ok(Call(id))
    }
}

impl Call {
    pub(super) fn end(self, edge: &Edge, request: &HttpRequest, response: &HttpResponse) {
        let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
        let made = location.filter(|_| response.status() == StatusCode::CREATED).and_then(|at| at.rsplit('/').next()).map(short);
        let members = request.extensions_mut().remove::<Members>().and_then(|members| members.0);
        edge.service.audit_end(self.0, response.status().as_u16(), made, members);
    }
}

/// Records the names of the members of a JSON body, if the call is audited.
pub(super) fn note_members(request: &HttpRequest, body: &web::Bytes) {
    let mut extensions = request.extensions_mut();
    let Some(members) = extensions.get_mut::<Members>() else { return };
    if let Ok(names) = serde_json::from_slice::<BTreeMap<String, IgnoredAny>>(body) {
        let names: Vec<String> = names.into_keys().collect();
        members.0 = Some(short(&names.join(", "))).filter(|text| !text.is_empty());
    }
}

/// The kind of object at an address: `job` for `/api/v1/jobs/{id}/trigger`.
fn kind(path: &'static str) -> &'static str {
    let rest = ["/api/v1/", "/api/v1.0/", "/"].iter().find_map(|start| path.strip_prefix(start)).unwrap_or(path);
    let noun = rest.split('/').find(|part| *part == "hooks").or_else(|| rest.split('/').next()).unwrap_or_default();
    if noun.ends_with(".json") {
        // A call of scrapyd.
        return "project";
    }
    noun.strip_suffix('s').unwrap_or(noun)
}

/// The headers `X-Forwarded-For`. A proxy and a standby add theirs after what the caller sent, so the end is what counts.
fn forwarded_for(headers: &HeaderMap) -> Option<String> {
    let all: Vec<_> = headers.get_all("X-Forwarded-For").filter_map(|value| value.to_str().ok()).collect();
    let all = all.join(", ");
    let last = all.char_indices().rev().nth(MOST - 1).map_or(0, |(at, _)| at);
    Some(short(&all[last..])).filter(|text| !text.is_empty())
}

fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_windows_watch_changes_nothing_and_is_not_audited() {
        let table = crate::edge::table();
        let live = table.iter().flat_map(|resource| resource.operations.iter().map(move |operation| (operation, resource.paths[0])));
        let live: Vec<_> = live.filter(|(operation, _)| operation.is_live).collect();
        assert!(live.len() > 10, "the marked ones are found");
        for (operation, path) in live {
            assert!(operation.method == Method::GET && Audited::of(operation, path).is_none(), "{}", operation.name);
        }
    }

    #[test]
    fn what_a_caller_forwards_does_not_hide_what_a_standby_adds() {
        let name = || actix_web::http::header::HeaderName::from_static("x-forwarded-for");
        let mut headers = HeaderMap::new();
        assert_eq!(forwarded_for(&headers), None);
        headers.append(name(), "10.0.0.1".parse().expect("a value"));
        headers.append(name(), "192.0.2.7".parse().expect("a value"));
        assert_eq!(forwarded_for(&headers).as_deref(), Some("10.0.0.1, 192.0.2.7"));
        headers.insert(name(), "x".repeat(500).parse().expect("a value"));
        headers.append(name(), "192.0.2.7".parse().expect("a value"));
        let text = forwarded_for(&headers).expect("a text");
        assert!(text.len() == MOST && text.ends_with("x, 192.0.2.7"), "{text}");
    }

    #[test]
    fn every_change_by_people_is_audited_and_nothing_else() {
        let table = crate::edge::table();
        let audited = |name: &str| {
            let found = table.iter().find_map(|resource| {
                let operation = resource.operations.iter().find(|operation| operation.name == name)?;
                Some(Audited::of(operation, resource.paths[0]).map(|audited| audited.kind))
            });
            found.unwrap_or_else(|| panic!("no operation {name}"))
        };
        for (name, kind) in [
            ("updateJob", Some("job")),
            ("stopRun", Some("run")),
            ("createHook", Some("hook")),
            ("createToken", Some("token")),
            ("netUpdateJob", Some("job")),
            ("scrapydAddVersion", Some("project")),
            ("triggerJob", None),
            ("triggerJobByGet", None),
            ("netFireJob", None),
            ("callHook", None),
            ("easyInsertGroup", Some("group")),
            ("listTokens", None),
            ("readJob", None),
            ("pushRequests", None),
            ("beat", None),
            ("previewSchedule", None),
        ] {
            assert_eq!(audited(name), kind, "{name}");
        }
    }
}
