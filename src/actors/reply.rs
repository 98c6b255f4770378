//! Replies to messages whose caller may go away: the actor does the work anyway, but nothing receives the answer.

use crate::protocol::problem::Problem;
use crate::store::StoreError;
use tokio::sync::oneshot;

/// The sending half of an answer.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<Result<T, Problem>>);

/// The receiving half of an answer.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Receiver<Result<T, Problem>>);

/// Creates both halves of an answer.
#[must_use]
pub fn reply<T>() -> (Reply<T>, Answer<T>) {
    let (sender, receiver) = oneshot::channel();
    (Reply(sender), Answer(receiver))
}

impl<T> Reply<T> {
    /// Sends the answer. Returns it if the caller no longer waits.
    ///
    /// # Errors
    /// The caller has gone.
    pub fn give(self, answer: Result<T, Problem>) -> Result<(), Result<T, Problem>> {
        self.0.send(answer)
    }

    /// Sends the answer, whether or not the caller still waits.
    pub fn send(self, answer: Result<T, Problem>) {
        // The caller may have disconnected; the completed work stays.
        let _ = self.0.send(answer);
    }

    /// The caller has gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Answer<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The answer is a problem, or the actor crashed. Then the problem is *busy*, because the actor is being rebuilt.
    pub async fn wait(self) -> Result<T, Problem> {
        self.arrives().await.unwrap_or_else(|| Err(Problem::busy("the actor is restarting; retry later")))
    }

    /// Waits for the answer. `None`: the actor has ended without it.
    pub async fn arrives(self) -> Option<Result<T, Problem>> {
        self.0.await.ok()
    }
}

impl<T: 'static> Answer<T> {
    /// Passes the answer on when it arrives. The caller does not wait, so this counts as two messages, not as an ask.
    pub fn then(self, take: impl FnOnce(Result<T, Problem>) + 'static) {
        actix::spawn(async move { take(self.wait().await) });
    }

    /// Passes the answers on, in order, when all have arrived; see [`Answer::then`].
    pub fn then_all(answers: Vec<Self>, take: impl FnOnce(Vec<Result<T, Problem>>) + 'static) {
        actix::spawn(async move { take(futures_util::future::join_all(answers.into_iter().map(Self::wait)).await) });
    }
}

/// Maps an error of the store to a problem for the client.
#[must_use]
pub fn problem_of(error: &StoreError) -> Problem {
    match error {
        StoreError::Busy => Problem::busy("write queue is full; retry later"),
        StoreError::NotLeading => Problem::standby(None),
        StoreError::Closed => Problem::ending(),
        StoreError::Stale => Problem::busy("another broker owns the run"),
        StoreError::Conflict(what) => Problem::conflict("conflict", what.clone()),
        StoreError::NotFound => Problem::not_found("not found in the store"),
        StoreError::NotStorable(why) => Problem::invalid("text", why.clone()),
        StoreError::Unreachable(_) => Problem::busy("the database cannot be reached; retry later"),
        StoreError::Failed(_) | StoreError::Unknown(_) | StoreError::Unusable(_) => {
            error.disk_trouble().map_or_else(Problem::internal, Problem::disk)
        }
    }
}
