//! Resolves an argument of the command line: an id, the digits that an id begins or ends with, a number, or a name.

use super::client::Client;
use super::failure::Failure;
use super::table::{cell, items, some};
use crate::domain::ids::{IdPart, JobId, Number};
use serde_json::Value;

/// Maximum number of entries that are searched for a name.
const MOST: usize = 100_000;
/// Maximum number of candidates in an error message.
const CANDIDATES: usize = 10;

/// A kind of entry of the broker.
#[derive(Debug, Clone, Copy)]
pub struct Noun {
    word: &'static str,
    path: &'static str,
    id: &'static str,
    /// The member with the name for people; unique or not.
    name: &'static str,
    /// The broker searches names and digits itself, because there may be very many entries.
    is_searched: bool,
    query: &'static [(&'static str, &'static str)],
}

const JOBS: Noun = Noun { word: "job", path: "jobs", id: "id", name: "name", is_searched: true, query: &[] };
/// Jobs.
pub const JOB: Noun = JOBS;
/// Jobs that were deleted.
pub const DELETED_JOB: Noun = Noun { word: "deleted job", query: &[("deleted", "true")], ..JOBS };
/// Runs, which have no names.
pub const RUN: Noun = Noun { word: "run", path: "runs", id: "identity", name: "", ..JOBS };
/// Nodes.
pub const NODE: Noun = Noun { word: "node", path: "nodes", id: "nodeId", is_searched: false, ..JOBS };
/// Workers.
pub const WORKER: Noun = Noun { word: "worker", path: "workers", is_searched: false, ..JOBS };
/// Groups.
pub const GROUP: Noun = Noun { word: "group", path: "groups", is_searched: false, ..JOBS };
/// Alerts.
pub const ALERT: Noun = Noun { word: "alert", path: "alerts", is_searched: false, ..JOBS };
/// Packages.
pub const PACKAGE: Noun = Noun { word: "package", path: "packages", id: "sha256", is_searched: false, ..JOBS };

/// The id of the entry that the text names.
///
/// # Errors
/// No entry matches, or several do.
pub async fn find(client: &Client, noun: Noun, text: &str) -> Result<String, Failure> {
    let Noun { word, query, .. } = noun;
    let (list, all) = if query.is_empty() { (word, "") } else { ("job", " --deleted") };
    let missing = || Failure::Refused(format!("there is no {word} `{text}`: `webloom {list} list{all}` shows what there is"));
    find_if_any(client, noun, text).await?.ok_or_else(missing)
}

/// Same as [`find`]; `None` if no entry matches.
///
/// # Errors
/// Several match.
pub async fn find_if_any(client: &Client, noun: Noun, text: &str) -> Result<Option<String>, Failure> {
    // Ids of all kinds have one form.
    if let Ok(id) = text.parse::<JobId>() {
        return Ok(Some(id.to_string()));
    }
    let part = text.trim_start_matches('…').parse::<IdPart>().ok();
    let mut found = if noun.name.is_empty() { Vec::new() } else { called(client, noun, text).await? };
    // A program that takes a new id at each start leaves old entries with its name behind.
    let online: Vec<Value> = found.iter().filter(|thing| thing["isOnline"] == true).cloned().collect();
    if let [_] = online[..] {
        found = online;
    }
    if found.is_empty() && noun.query.is_empty() && noun.path != "packages" && text.parse::<Number>().is_ok() {
        match client.numbered(noun.path, text, noun.id).await {
            Ok(id) => return Ok(Some(id)),
            // Digits may also be the end of an id.
            Err(failure) if part.is_none() => return Err(failure),
            Err(_) => {}
        }
    }
    if let (true, Some(part)) = (found.is_empty(), &part) {
        let is_of = |thing: &Value| thing[noun.id].as_str().is_some_and(|id| part.is_of(id));
        found = things(client, noun, &[("id", part.digits())]).await?.into_iter().filter(is_of).collect();
    }
    choose(noun, text, &found)
}

/// Entries with this name.
async fn called(client: &Client, noun: Noun, text: &str) -> Result<Vec<Value>, Failure> {
    // The broker matches parts of names; select the exact match here.
    let found = things(client, noun, &[(noun.name, text)]).await?;
    Ok(found.into_iter().filter(|thing| thing[noun.name] == text).collect())
}

async fn things(client: &Client, noun: Noun, search: &[(&str, &str)]) -> Result<Vec<Value>, Failure> {
    let search = if noun.is_searched { search } else { &[] };
    let query: Vec<(&str, Option<String>)> =
        noun.query.iter().chain(search).map(|(name, value)| (*name, Some((*value).to_owned()))).collect();
    let found = if noun.is_searched || noun.path != "nodes" && noun.path != "packages" {
        client.list(&[noun.path], &query, MOST).await?
    } else {
        client.get(&[noun.path], &[]).await?
    };
    Ok(items(&found.value()?).to_vec())
}

/// The only match, or an error that lists the candidates.
fn choose(noun: Noun, text: &str, found: &[Value]) -> Result<Option<String>, Failure> {
    let Noun { word, id, name, .. } = noun;
    match found {
        [] => Ok(None),
        [one] => Ok(Some(cell(one, id))),
        several => {
            let name = if name.is_empty() { "jobName" } else { name };
            let line = |thing: &Value| format!("\n  {}  {}", cell(thing, id), some(thing, name).unwrap_or_default());
            let mut lines: String = several.iter().take(CANDIDATES).map(|thing| line(thing).trim_end().to_owned()).collect();
            if several.len() > CANDIDATES {
                lines += "\n  …";
            }
            Err(Failure::Refused(format!("`{text}` may be any of {} {word}s: give more digits of its id{lines}", several.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_clear_is_refused_with_candidates() {
        let one = json!({ "id": "0193b2c4d5e67f809a0b1c2d3e4f5a6b", "name": "a" });
        assert!(matches!(choose(JOB, "a", std::slice::from_ref(&one)), Ok(Some(id)) if id == "0193b2c4d5e67f809a0b1c2d3e4f5a6b"));
        assert!(matches!(choose(JOB, "a", &[]), Ok(None)));
        let text = |found: &[Value], noun| match choose(noun, "0193", found) {
            Err(Failure::Refused(text)) => text,
            other => panic!("{other:?}"),
        };
        let several = text(&[one.clone(), json!({ "id": "0193b2c4d5e67f809a0b1c2d3e4f0000", "name": "b" })], JOB);
        assert!(several.starts_with("`0193` may be any of 2 jobs: give more digits of its id\n  0193b2c4"), "{several}");
        assert!(several.ends_with("e4f0000  b"), "{several}");
        assert_eq!(text(&vec![one; 11], JOB).lines().count(), 12);
    }
}
