//! Responses with masked secrets, for callers that may read but not change.

use super::auth::Caller;
use crate::domain::alert::ChannelKind;
use crate::domain::callback::Callback;
use crate::domain::job::{JobKind, Properties};
use crate::domain::secrets::{MASK, Secrets, mask_arguments, mask_request, mask_response, mask_webhook};
use crate::protocol::alerts::AlertOutput;
use crate::protocol::api::{Page, RunOutput};
use crate::protocol::management::{ExportedJob, JobChange, JobOutput};
use serde_json::Value;

/// A value that may hold secrets.
pub trait Hide {
    /// Masks each secret.
    fn hide(&mut self);
}

/// The value as this caller may see it.
pub fn shown<T: Hide>(caller: &Caller, mut what: T) -> T {
    if !caller.sees_secrets() {
        what.hide();
    }
    what
}

impl<T: Hide> Hide for Vec<T> {
    fn hide(&mut self) {
        self.iter_mut().for_each(Hide::hide);
    }
}

impl Hide for JobOutput {
    fn hide(&mut self) {
        Secrets { callback: self.job.callback.as_mut(), properties: &mut self.job.properties }.hide();
    }
}

impl Hide for RunOutput {
    fn hide(&mut self) {
        if self.kind == JobKind::Callback.name() {
            self.class_name = mask_request(&self.class_name);
            self.result.iter_mut().for_each(mask_response);
            // They are parts of the URL and the body.
            self.arguments.iter_mut().for_each(|arguments| *arguments = MASK.into());
        }
        self.arguments.iter_mut().for_each(mask_arguments);
    }
}

impl<T: Hide> Hide for Page<T> {
    fn hide(&mut self) {
        self.items.hide();
    }
}

impl Hide for ExportedJob {
    fn hide(&mut self) {
        let mut properties = Properties(std::mem::take(&mut self.properties));
        Secrets { callback: self.callback.as_mut(), properties: &mut properties }.hide();
        self.properties = properties.0;
    }
}

impl Hide for JobChange {
    fn hide(&mut self) {
        if let Some(callback) = self.job.get_mut("callback").filter(|callback| !callback.is_null()) {
            *callback = hidden(callback, |callback: &mut Callback| {
                Secrets { callback: Some(callback), properties: &mut Properties::default() }.hide();
            });
        }
        if let Some(properties) = self.job.get_mut("properties") {
            *properties = hidden(properties, |properties| Secrets { callback: None, properties }.hide());
        }
    }
}

/// A part of a job that is stored as JSON. If it does not parse as that part, all of it is masked.
fn hidden<T: serde::de::DeserializeOwned + serde::Serialize>(part: &Value, hide: impl FnOnce(&mut T)) -> Value {
    let read = serde_json::from_value(part.clone()).and_then(|mut part| {
        hide(&mut part);
        serde_json::to_value(part)
    });
    read.unwrap_or_else(|_| MASK.into())
}

impl Hide for AlertOutput {
    fn hide(&mut self) {
        if self.kind == ChannelKind::Webhook {
            self.target = mask_webhook(&self.target);
        }
    }
}
