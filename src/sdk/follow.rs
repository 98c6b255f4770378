//! The follow-up requests of a block: collected while its pages are processed, sent with its acknowledgement.
//!
//! Requests that the broker would reject or drop are left out here, so that one bad link does not fail a batch and known links cost no
//! call.

use super::error::Error;
use super::run::RunContext;
use super::sent::Hashes;
use crate::domain::fingerprint::{Fingerprint, canonical, normalized};
use crate::domain::ids::BlockId;
use crate::protocol::problem::Problem;
use crate::protocol::push::{MOST_REQUEST, MOST_REQUESTS, MOST_URL, Pushed, Request};
use bytes::Bytes;
use url::Url;
use uuid::Uuid;

/// Bytes of one call: well below the broker's limit.
const CALL: usize = 8 << 20;

/// What happened to a follow-up request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Took {
    /// It will be sent with the acknowledgement.
    Sent,
    /// It was sent before, with this block or an earlier one.
    Known,
    /// It is deeper than the run's limit.
    TooDeep,
    /// The broker would reject it.
    Invalid(Problem),
}

/// A position to return to: [`Follow::mark`].
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    text: usize,
    ends: usize,
    hashes: usize,
}

/// Collects the follow-up requests from the pages of a block.
#[derive(Debug)]
pub struct Follow<'r> {
    run: &'r RunContext,
    depth: u32,
    /// JSON objects, one after the other.
    text: Vec<u8>,
    /// The end offset of each.
    ends: Vec<usize>,
    /// Remembered once the broker has accepted the requests.
    hashes: Vec<u64>,
    here: Hashes,
}

impl<'r> Follow<'r> {
    pub(crate) fn new(run: &'r RunContext) -> Self {
        Self { run, depth: 0, text: Vec::new(), ends: Vec::new(), hashes: Vec::new(), here: Hashes::default() }
    }

    /// The run.
    #[must_use]
    pub fn run(&self) -> &'r RunContext {
        self.run
    }

    /// Requests after this call come from a page of this depth. The default [`super::Spider::block`] sets it for each page.
    pub fn from_depth(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// Adds a request. Sets its depth to one more than the page's.
    pub fn push(&mut self, request: Request) -> Took {
        self.add(request, self.depth.saturating_add(1)).unwrap_or_else(Took::Invalid)
    }

    /// Adds a GET of a parsed URL: the short form for a link.
    pub fn link(&mut self, url: Url) -> Took {
        self.link_with(url, None)
    }

    /// Same as [`Follow::link`], with a custom value that comes back with the page.
    pub fn link_with(&mut self, url: Url, meta: Option<serde_json::Value>) -> Took {
        let depth = self.depth.saturating_add(1);
        if self.is_too_deep(depth) {
            return Took::TooDeep;
        }
        if !matches!(url.scheme(), "http" | "https") || url.as_str().len() > MOST_URL {
            return Took::Invalid(Problem::invalid("url", "an http or https URL within the length limit is expected"));
        }
        let url = canonical(url);
        let url = normalized(url.as_str());
        if !self.is_new(hash(Fingerprint::of("GET", &url, b""))) {
            return Took::Known;
        }
        self.write(&Request { url: url.into_owned(), depth, meta, ..Request::default() });
        Took::Sent
    }

    /// True the first time that a text is given in this run, as far as the worker remembers: a way to skip links before they are parsed.
    /// The texts of a block are remembered only when the block is acknowledged.
    pub fn once(&mut self, text: &[u8]) -> bool {
        let hash = self.run.sent.borrow().hash(text);
        self.is_new(hash)
    }

    /// Whether requests from the present page would exceed the run's depth limit.
    #[must_use]
    pub fn is_at_the_bottom(&self) -> bool {
        self.is_too_deep(self.depth.saturating_add(1))
    }

    /// Number of requests so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The present position.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { text: self.text.len(), ends: self.ends.len(), hashes: self.hashes.len() }
    }

    /// Removes everything that was added since.
    pub fn back_to(&mut self, mark: Mark) {
        self.text.truncate(mark.text);
        self.ends.truncate(mark.ends);
        for hash in self.hashes.drain(mark.hashes..) {
            self.here.remove(&hash);
        }
    }

    pub(crate) fn add(&mut self, mut request: Request, depth: u32) -> Result<Took, Problem> {
        if self.is_too_deep(depth) {
            return Ok(Took::TooDeep);
        }
        request.depth = depth;
        request.request_id = None;
        if request.dont_filter {
            // A call that is repeated, because its answer was lost, does not put the request into the queue twice. A key of its own would keep out
            // every later one with the same key.
            request.key = Some(Uuid::new_v4().simple().to_string());
        }
        let id = request.check()?;
        if !request.dont_filter && !self.is_new(hash(id)) {
            return Ok(Took::Known);
        }
        self.write(&request);
        Ok(Took::Sent)
    }

    fn is_too_deep(&self, depth: u32) -> bool {
        // A request dropped as too deep must not be remembered: a shorter path to it may come.
        self.run.depth_limit.is_some_and(|limit| depth > limit)
    }

    fn is_new(&mut self, hash: u64) -> bool {
        let new = !self.run.sent.borrow().has(hash) && self.here.insert(hash);
        if new {
            self.hashes.push(hash);
        }
        new
    }

    fn write(&mut self, request: &Request) {
        serde_json::to_writer(&mut self.text, request).expect("a request is plain data");
        self.ends.push(self.text.len());
    }

    /// The bodies of the calls: arrays of JSON objects, each within the size limit.
    fn bodies(&self, call: usize) -> Vec<Vec<u8>> {
        const { assert!(CALL + MOST_REQUEST < crate::protocol::MAX_PUSH) }
        let (mut bodies, mut body, mut start, mut count) = (Vec::new(), vec![b'['], 0, 0);
        for &end in &self.ends {
            if count == MOST_REQUESTS || body.len() + end - start > call && count > 0 {
                body.push(b']');
                bodies.push(std::mem::replace(&mut body, vec![b'[']));
                count = 0;
            }
            if count > 0 {
                body.push(b',');
            }
            body.extend_from_slice(&self.text[start..end]);
            (start, count) = (end, count + 1);
        }
        body.push(b']');
        bodies.push(body);
        bodies
    }

    /// Sends the requests without acknowledging a block.
    pub(crate) async fn push_all(self, run: &RunContext) -> Result<Pushed, Error> {
        let mut sum = Pushed::default();
        if self.is_empty() {
            return Ok(sum);
        }
        for body in self.bodies(CALL) {
            let pushed = run.client.push(run.identity(), Bytes::from(body)).await?;
            sum.block_ids.extend(pushed.block_ids);
            sum.accepted += pushed.accepted;
            sum.duplicates += pushed.duplicates;
            sum.too_deep += pushed.too_deep;
            sum.over_limit += pushed.over_limit;
            sum.trapped += pushed.trapped;
        }
        run.sent.borrow_mut().took(&self.hashes);
        Ok(sum)
    }

    /// Acknowledges a block together with the requests. Requests that do not fit into one call are sent before it.
    pub(crate) async fn acknowledge(self, block: BlockId) -> Result<Pushed, Error> {
        let run = self.run;
        let mut bodies = self.bodies(CALL);
        let last = bodies.pop().unwrap_or_else(|| b"[]".to_vec());
        for body in bodies {
            run.client.push(run.identity(), Bytes::from(body)).await?;
        }
        let head = format!("{{\"blocks\":[\"{block}\"],\"requests\":");
        let body = [head.as_bytes(), &last, b"}"].concat();
        let pushed = run.client.acknowledge(run.identity(), Bytes::from(body)).await?;
        run.sent.borrow_mut().took(&self.hashes);
        Ok(pushed)
    }
}

fn hash(id: Fingerprint) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&id.0[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::super::client::Client;
    use super::*;
    use crate::domain::ids::{Identity, JobId};
    use crate::protocol::worker::StartRun;
    use std::rc::Rc;

    fn run(properties: &[(&str, &str)]) -> RunContext {
        let order = StartRun {
            identity: Identity::random(),
            job_id: JobId::random(),
            class_name: "a.B".into(),
            arguments: None,
            properties: properties.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            start_returned: false,
            planned_at: None,
            attempt: 1,
            trace_id: None,
        };
        RunContext::new(order, Rc::new(Client::new("http://127.0.0.1:1", None).expect("an address")))
    }

    #[test]
    fn bad_known_and_deep_links_are_left_out() {
        actix_rt::System::new().block_on(async {
            let run = run(&[("DEPTH_LIMIT", "3")]);
            let mut follow = Follow::new(&run);
            follow.from_depth(1);
            assert_eq!(follow.push(Request::get("http://a/x#1")), Took::Sent);
            assert_eq!(follow.link(Url::parse("http://a/x#2").expect("a url")), Took::Known);
            assert!(matches!(follow.push(Request::get("ftp://a/")), Took::Invalid(_)));
            assert!(matches!(follow.link(Url::parse("mailto:a@b").expect("a url")), Took::Invalid(_)));
            let again = Request { dont_filter: true, ..Request::get("http://a/x") };
            assert_eq!((follow.push(again.clone()), follow.push(again)), (Took::Sent, Took::Sent));
            follow.from_depth(3);
            assert_eq!(follow.push(Request::get("http://a/deep")), Took::TooDeep);
            assert!(follow.is_at_the_bottom());
            let body: Vec<Request> = serde_json::from_slice(&follow.bodies(CALL)[0]).expect("JSON");
            assert_eq!(body.iter().map(|r| r.depth).collect::<Vec<_>>(), [2, 2, 2]);
            assert_eq!(body[0].url, "http://a/x#1");
            let keys: Vec<_> = body.iter().map(|request| request.key.clone()).collect();
            assert!(keys[0].is_none() && keys[1].is_some() && keys[1] != keys[2], "{keys:?}");
        });
    }

    #[test]
    fn what_a_failed_page_gave_is_forgotten() {
        actix_rt::System::new().block_on(async {
            let run = run(&[]);
            let mut follow = Follow::new(&run);
            assert_eq!(follow.push(Request::get("http://a/1")), Took::Sent);
            let mark = follow.mark();
            assert!(follow.push(Request::get("http://a/2")) == Took::Sent && follow.once(b"text"));
            follow.back_to(mark);
            assert_eq!(follow.len(), 1);
            assert_eq!(follow.push(Request::get("http://a/1")), Took::Known);
            assert!(follow.push(Request::get("http://a/2")) == Took::Sent && follow.once(b"text") && !follow.once(b"text"));
            drop(follow);
            assert_eq!(Follow::new(&run).push(Request::get("http://a/1")), Took::Sent, "nothing was acknowledged");
        });
    }

    #[test]
    fn much_goes_in_several_calls() {
        actix_rt::System::new().block_on(async {
            let run = run(&[]);
            let mut follow = Follow::new(&run);
            for i in 0..10 {
                follow.push(Request::get(format!("http://a/{i}")));
            }
            let bodies = follow.bodies(100);
            assert!(bodies.len() > 2);
            let sum: usize = bodies.iter().map(|b| serde_json::from_slice::<Vec<Request>>(b).expect("JSON").len()).sum();
            assert_eq!(sum, 10);
        });
    }
}
