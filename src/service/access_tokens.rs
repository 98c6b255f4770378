//! Named tokens, and the groups of jobs and runs that some are limited to.

use super::Service;
use crate::actors::reply::problem_of;
use crate::config::named_tokens::NamedToken;
use crate::config::tokens::{Role, TokenKey};
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use crate::protocol::access_tokens::{NewToken, TokenInput, TokenOutput};
use crate::protocol::problem::Problem;
use crate::protocol::token::{NAMED, role};
use crate::store::{DeleteToken, GroupOfJob, GroupOfNamed, GroupOfRun, InsertToken, ListTokens, StoreError, StoredToken};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// Maximum number of named tokens.
const MOST: usize = 1_000;
/// Maximum length of a name.
const MOST_NAME: usize = 50;
/// Maximum number of groups of a token.
const MOST_GROUPS: usize = 100;
/// Names that histories use for other callers.
const RESERVED: [&str; 4] = ["broker", "scheduler", "workflow", "webhook"];

fn damaged(token: &StoredToken, what: &str) -> Problem {
    // A standby reads the tokens each second.
    static LOGGED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if LOGGED.lock().unwrap_or_else(PoisonError::into_inner).insert(token.hash.clone()) {
        log::error!("stored token is damaged name={} member={what}", token.name);
    }
    Problem::internal()
}

fn groups_of(token: &StoredToken) -> Result<Option<Vec<String>>, Problem> {
    let groups = token.job_groups.as_deref().map(serde_json::from_str).transpose();
    groups.map_err(|_| damaged(token, "job_groups"))
}

fn output(token: StoredToken) -> Result<TokenOutput, Problem> {
    let groups = groups_of(&token)?;
    Ok(TokenOutput {
        is_expired: token.expire_time.is_some_and(|at| at <= Timestamp::now()),
        groups,
        name: token.name,
        role: token.role,
        expire_time: token.expire_time,
        create_by: token.create_by,
        creation_time: token.creation_time,
    })
}

/// Checks a name that histories show.
pub(super) fn check_plain_name(name: &str) -> Result<(), Problem> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._@-".contains(&b);
    if !(1..=MOST_NAME).contains(&name.len()) || !name.bytes().all(is_plain) {
        return Err(Problem::invalid("name", format!("must have 1 to {MOST_NAME} letters, digits or one of `._@-`")));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Problem> {
    check_plain_name(name)?;
    // In histories it must not look like another caller.
    let lower = name.to_ascii_lowercase();
    if role(&lower).is_some() || RESERVED.contains(&lower.as_str()) {
        return Err(Problem::invalid("name", format!("`{name}` is reserved: choose another name")));
    }
    Ok(())
}

fn read(input: TokenInput, by: Option<String>, now: Timestamp) -> Result<(StoredToken, String), Problem> {
    check_name(&input.name)?;
    let Some(role) = Role::named(&input.role) else {
        return Err(Problem::invalid("role", "must be admin, editor, operator, readonly, agent or worker"));
    };
    if let Some(groups) = &input.groups {
        if !matches!(role, Role::Editor | Role::Operator | Role::ReadOnly) {
            return Err(Problem::invalid("groups", format!("a token of role {} cannot be limited to groups", role.name())));
        }
        if !(1..=MOST_GROUPS).contains(&groups.len()) || groups.iter().any(|group| group.trim() != group || group.is_empty()) {
            return Err(Problem::invalid("groups", format!("must be 1 to {MOST_GROUPS} names of groups; leave it out for all jobs")));
        }
    }
    if input.expire_time.is_some_and(|at| at <= now) {
        return Err(Problem::invalid("expireTime", "must be in the future"));
    }
    let random = || uuid::Uuid::new_v4().simple().to_string();
    let text = format!("{NAMED}{}{}", random(), random());
    let groups = input.groups.map(|groups| serde_json::to_string(&groups)).transpose().map_err(|_| Problem::internal())?;
    let token = StoredToken {
        name: input.name,
        role: role.name().to_owned(),
        hash: TokenKey::of(&text).hex(),
        job_groups: groups,
        expire_time: input.expire_time,
        create_by: by,
        creation_time: now,
    };
    Ok((token, text))
}

impl Service {
    async fn stored_tokens(&self) -> Result<Vec<StoredToken>, Problem> {
        self.context.store.read(ListTokens).await.map_err(|e| problem_of(&e))
    }

    /// All named tokens, in the form in which callers are checked.
    ///
    /// # Errors
    /// The store fails.
    pub async fn named_tokens(&self) -> Result<Vec<NamedToken>, Problem> {
        let named = |token: StoredToken| -> Result<NamedToken, Problem> {
            let groups = groups_of(&token)?;
            Ok(NamedToken {
                role: Role::named(&token.role).ok_or_else(|| damaged(&token, "role"))?,
                key: TokenKey::from_hex(&token.hash).ok_or_else(|| damaged(&token, "hash"))?,
                groups: groups.map(Into::into),
                expires: token.expire_time,
                name: token.name.into(),
            })
        };
        // A token that cannot be read, such as one with a role of a later version, admits no caller; the others do.
        Ok(self.stored_tokens().await?.into_iter().filter_map(|token| named(token).ok()).collect())
    }

    /// All named tokens, by name.
    ///
    /// # Errors
    /// The store fails.
    pub async fn tokens(&self) -> Result<Vec<TokenOutput>, Problem> {
        self.stored_tokens().await?.into_iter().map(output).collect()
    }

    /// Creates a token.
    ///
    /// # Errors
    /// A value is invalid, the name is taken, or there are too many tokens.
    pub async fn create_token(&self, input: TokenInput, by: Option<String>) -> Result<NewToken, Problem> {
        let (token, text) = read(input, by, Timestamp::now())?;
        let written = self.context.store.write(InsertToken { token: token.clone(), most: MOST }).await;
        written.map_err(|error| match error {
            StoreError::Conflict(what) if what == "name" => {
                Problem::conflict("name-taken", format!("a token named `{}` already exists", token.name)).at("name")
            }
            StoreError::Conflict(_) => Problem::conflict("limit-reached", format!("there are {MOST} tokens: revoke some first")),
            other => problem_of(&other),
        })?;
        Ok(NewToken { token: output(token)?, text })
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// The token does not exist.
    pub async fn revoke_token(&self, name: String) -> Result<(), Problem> {
        self.context.store.write(DeleteToken(name.clone())).await.map_err(|error| match error {
            StoreError::NotFound => {
                Problem::not_found(format!("there is no named token `{name}`: `webloom token list` shows what there is"))
            }
            other => problem_of(&other),
        })
    }

    /// The group of a job, which may be deleted.
    ///
    /// # Errors
    /// The store fails.
    pub async fn group_of_job(&self, job: JobId) -> Result<Option<String>, Problem> {
        self.context.store.read(GroupOfJob(job)).await.map_err(|e| problem_of(&e))
    }

    /// The group of the job with this name or id.
    ///
    /// # Errors
    /// The store fails.
    pub async fn group_of_named(&self, job: String) -> Result<Option<String>, Problem> {
        self.context.store.read(GroupOfNamed(job)).await.map_err(|e| problem_of(&e))
    }

    /// The present group of a run's job.
    ///
    /// # Errors
    /// The store fails.
    pub async fn group_of_run(&self, run: Identity) -> Result<Option<String>, Problem> {
        self.context.store.read(GroupOfRun(run)).await.map_err(|e| problem_of(&e))
    }
}
