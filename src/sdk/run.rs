//! A run as a worker sees it.

use super::client::Client;
use super::error::{BoxError, Error};
use super::follow::Follow;
use super::sent::Sent;
use super::spider::Failed;
use crate::domain::ids::{Identity, JobId};
use crate::domain::job::Properties;
use crate::protocol::push::{Pushed, Request};
use crate::protocol::worker::StartRun;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Requests per push.
const BATCH: usize = 1_000;

/// The run that a spider processes.
#[derive(Debug)]
pub struct RunContext {
    pub(crate) order: StartRun,
    pub(crate) client: Rc<Client>,
    pub(crate) sent: RefCell<Sent>,
    pub(crate) depth_limit: Option<u32>,
    pub(crate) encoding: Option<String>,
    pub(crate) errors: Cell<u64>,
    pub(crate) start_returned: Cell<bool>,
}

impl RunContext {
    pub(crate) fn new(mut order: StartRun, client: Rc<Client>) -> Self {
        let properties = Properties(std::mem::take(&mut order.properties));
        // The broker checked the properties when it created the run.
        let depth_limit = properties.queue().ok().and_then(|queue| queue.depth_limit);
        let encoding = properties.download().ok().and_then(|download| download.site.encoding);
        order.properties = properties.0;
        let start_returned = Cell::new(order.start_returned);
        Self { order, client, sent: RefCell::default(), depth_limit, encoding, errors: Cell::new(0), start_returned }
    }

    /// The run's id.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.order.identity
    }

    /// The job's id.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.order.job_id
    }

    /// The class of the run.
    #[must_use]
    pub fn class_name(&self) -> &str {
        &self.order.class_name
    }

    /// The arguments of the trigger or the job.
    #[must_use]
    pub fn arguments(&self) -> Option<&str> {
        self.order.arguments.as_deref()
    }

    /// A property of the job; its key in any case, with or without underscores.
    #[must_use]
    pub fn property(&self, key: &str) -> Option<String> {
        Properties(self.order.properties.clone()).get(key).map(str::to_owned)
    }

    /// Errors of the spider in this run so far: pages that it could not process.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors.get()
    }

    /// Pushes requests from outside a page: from `start`, if they are too many to return, or from elsewhere. They are on disk when it
    /// returns. After an error it may be called again: the run drops known requests, but not those with `dont_filter`.
    ///
    /// # Errors
    /// [`Error::Request`] names a request that is not allowed; earlier batches of a thousand are pushed by then. [`Error::RunOver`]. Any
    /// other final rejection by the broker. While the broker is unreachable, the call is retried.
    pub async fn push(&self, requests: impl IntoIterator<Item = Request>) -> Result<Pushed, Error> {
        let mut sum = Pushed::default();
        let mut requests = requests.into_iter().enumerate().peekable();
        while requests.peek().is_some() {
            let mut batch = Follow::new(self);
            for (index, request) in requests.by_ref().take(BATCH) {
                let depth = request.depth;
                batch.add(request, depth).map_err(|problem| Error::Request { index, problem })?;
            }
            let pushed = batch.push_all(self).await?;
            sum.block_ids.extend(pushed.block_ids);
            sum.accepted += pushed.accepted;
            sum.duplicates += pushed.duplicates;
            sum.too_deep += pushed.too_deep;
            sum.over_limit += pushed.over_limit;
            sum.trapped += pushed.trapped;
        }
        Ok(sum)
    }

    pub(crate) fn failed<'a>(&'a self, page: Option<&'a super::Page>, error: &'a BoxError) -> Failed<'a> {
        self.errors.set(self.errors.get() + 1);
        Failed { run: self, page, error: &**error }
    }
}
