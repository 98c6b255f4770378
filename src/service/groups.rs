//! Groups: names that jobs and nodes refer to (seed 003).

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::ids::{GroupId, Number};
use crate::domain::job::limits;
use crate::domain::time::Timestamp;
use crate::protocol::api::Page;
use crate::protocol::management::{DisableInput, GroupInput, GroupOutput, GroupSwitched};
use crate::protocol::problem::Problem;
use crate::store::{DeleteGroup, Group, InsertGroup, JobsInGroup, ListGroups, StoreError, UpdateGroup};

fn output((group, jobs, nodes): (Group, u64, u64)) -> GroupOutput {
    GroupOutput {
        id: group.id,
        number: group.id.number(),
        name: group.name,
        description: group.description,
        jobs,
        nodes,
        create_by: group.create_by,
        update_by: group.update_by,
        creation_time: group.creation_time,
        update_time: group.update_time,
    }
}

/// Applies the input to a group and validates it.
fn apply(group: &mut Group, input: GroupInput) -> Result<(), Problem> {
    if let Some(name) = input.name {
        group.name = name.trim().to_owned();
    }
    if group.name.is_empty() {
        return Err(Problem::invalid("name", "must not be empty"));
    }
    if group.name.chars().any(char::is_control) {
        return Err(Problem::invalid("name", "must not contain control characters, such as a line break"));
    }
    if let Some(description) = input.description {
        group.description = Some(description).filter(|text| !text.is_empty());
    }
    let description = group.description.as_deref().unwrap_or_default();
    let lengths = [("name", group.name.chars().count(), limits::NAME), ("description", description.chars().count(), limits::DESCRIPTION)];
    match lengths.into_iter().find(|(_, length, most)| length > most) {
        Some((field, length, most)) => Err(Problem::invalid(field, format!("must have at most {most} characters, not {length}"))),
        None => Ok(()),
    }
}

fn conflict(error: &StoreError, name: &str) -> Problem {
    match error {
        StoreError::Conflict(what) if what == "name" => {
            Problem::conflict("name-taken", format!("a group named `{name}` already exists")).at("name")
        }
        StoreError::Conflict(_) => Problem::conflict("group-in-use", format!("jobs are in the group `{name}`: move or delete them first")),
        other => problem_of(other),
    }
}

impl Service {
    /// Lists groups by name.
    ///
    /// # Errors
    /// The store fails.
    pub async fn groups(&self, among: Option<Vec<String>>, after: Option<String>, limit: usize) -> Result<Page<GroupOutput>, Problem> {
        let query = ListGroups { among, after, limit: limit + 1, ..ListGroups::default() };
        let mut rows = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|(group, ..)| group.name.clone());
        Ok(Page { items: rows.into_iter().map(output).collect(), next_cursor })
    }

    async fn stored_group(&self, id_or_name: &str) -> Result<(Group, u64, u64), Problem> {
        let query = ListGroups { id_or_name: Some(id_or_name.to_owned()), limit: 2, ..ListGroups::default() };
        let mut found = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        // The name of one group may be equal to the id of another, or to a number.
        if let (true, Ok(number)) = (found.is_empty(), id_or_name.parse::<Number>()) {
            let id: GroupId = self.numbered(number).await?;
            let query = ListGroups { id_or_name: Some(id.to_string()), limit: 2, ..ListGroups::default() };
            found = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        }
        let place = found.iter().position(|(group, ..)| group.id.to_string().eq_ignore_ascii_case(id_or_name)).unwrap_or(0);
        if found.is_empty() { Err(Problem::not_found(format!("there is no group `{id_or_name}`"))) } else { Ok(found.swap_remove(place)) }
    }

    /// A group, by its id, its name or its number.
    ///
    /// # Errors
    /// The group does not exist.
    pub async fn group(&self, id_or_name: &str) -> Result<GroupOutput, Problem> {
        Ok(output(self.stored_group(id_or_name).await?))
    }

    /// Creates a group.
    ///
    /// # Errors
    /// A value is invalid, or the name is taken.
    pub async fn create_group(&self, input: GroupInput, by: Option<String>) -> Result<GroupOutput, Problem> {
        let now = Timestamp::now();
        let mut group = Group {
            id: GroupId::at(now),
            name: String::new(),
            description: None,
            create_by: by.clone(),
            update_by: by,
            creation_time: now,
            update_time: now,
        };
        apply(&mut group, input)?;
        self.context.store.write(InsertGroup(group.clone())).await.map_err(|e| conflict(&e, &group.name))?;
        self.group(&group.id.to_string()).await
    }

    /// Changes a group. Its jobs, its workers and their tasks use the new name from then on.
    ///
    /// # Errors
    /// The group does not exist, a value is invalid, or the name is taken.
    pub async fn update_group(&self, id_or_name: &str, input: GroupInput, by: Option<String>) -> Result<GroupOutput, Problem> {
        let (mut group, ..) = self.stored_group(id_or_name).await?;
        apply(&mut group, input)?;
        (group.update_by, group.update_time) = (by, Timestamp::now());
        let (jobs, workers) = self.context.store.write(UpdateGroup(group.clone())).await.map_err(|e| conflict(&e, &group.name))?;
        for job in jobs {
            // The cached state of its actor is outdated.
            if let Some(actor) = self.context.addresses.jobs.get(job) {
                actor.forget();
            }
        }
        for worker in workers {
            self.reload_worker(worker).await;
        }
        self.group(&group.id.to_string()).await
    }

    /// Deletes a group.
    ///
    /// # Errors
    /// The group does not exist, or has jobs.
    pub async fn delete_group(&self, id_or_name: &str) -> Result<(), Problem> {
        let (group, ..) = self.stored_group(id_or_name).await?;
        self.context.store.write(DeleteGroup(group.id)).await.map_err(|e| conflict(&e, &group.name))
    }

    /// Enables or disables all jobs of a group, one after the other. Jobs that are already in this state stay unchanged.
    ///
    /// # Errors
    /// The group does not exist, or a job could not be changed. The jobs before it are changed.
    pub async fn switch_group(
        &self,
        id_or_name: &str,
        disable: Option<DisableInput>,
        by: Option<String>,
    ) -> Result<GroupSwitched, Problem> {
        // Validate also if there is no job to change.
        disable.as_ref().map(super::jobs::stops).transpose()?;
        let (group, ..) = self.stored_group(id_or_name).await?;
        let jobs = self.context.store.read(JobsInGroup(group.name)).await.map_err(|e| problem_of(&e))?;
        let mut out = GroupSwitched { jobs: jobs.len(), changed: 0 };
        for (job, is_enabled) in jobs {
            if is_enabled != disable.is_some() {
                continue;
            }
            let changed = match &disable {
                Some(input) => self.disable_job(job, input.clone(), by.clone()).await,
                None => self.enable_job(job, by.clone()).await,
            };
            match changed {
                Ok(_) => out.changed += 1,
                // The job was deleted in the meantime.
                Err(problem) if problem.status == 404 => {}
                Err(problem) => return Err(problem),
            }
        }
        Ok(out)
    }
}
