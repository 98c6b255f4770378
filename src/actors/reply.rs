//! Answers to messages whose asker may go away: the work is done all the same, only nobody hears of it.

use crate::protocol::problem::Problem;
use crate::store::StoreError;
use tokio::sync::oneshot;

/// Where an answer goes.
#[derive(Debug)]
pub struct Reply<T>(oneshot::Sender<Result<T, Problem>>);

/// Where an answer comes from.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Receiver<Result<T, Problem>>);

/// The two ends of an answer.
#[must_use]
pub fn reply<T>() -> (Reply<T>, Answer<T>) {
    let (sender, receiver) = oneshot::channel();
    (Reply(sender), Answer(receiver))
}

impl<T> Reply<T> {
    /// Answers. Gives the answer back if nobody waits for it.
    ///
    /// # Errors
    /// The asker is gone.
    pub fn give(self, answer: Result<T, Problem>) -> Result<(), Result<T, Problem>> {
        self.0.send(answer)
    }

    /// Answers; whether anybody waits for it does not matter.
    pub fn send(self, answer: Result<T, Problem>) {
        // Whoever asked may have hung up; what was done stays done.
        let _ = self.0.send(answer);
    }

    /// The asker is gone.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Answer<T> {
    /// Waits for the answer.
    ///
    /// # Errors
    /// The answer is a problem, or the actor died over the question: then it is *busy*, since it is being rebuilt.
    pub async fn wait(self) -> Result<T, Problem> {
        self.0.await.unwrap_or_else(|_| Err(Problem::busy("the actor that was asked is being rebuilt")))
    }
}

impl<T: 'static> Answer<T> {
    /// Hands the answer on when it comes. Whoever asked does not wait for it: this is no ask, but a message that another one answers.
    pub fn then(self, take: impl FnOnce(Result<T, Problem>) + 'static) {
        actix::spawn(async move { take(self.wait().await) });
    }

    /// Hands the answers on, in their order, when all have come; as [`Answer::then`].
    pub fn then_all(answers: Vec<Self>, take: impl FnOnce(Vec<Result<T, Problem>>) + 'static) {
        actix::spawn(async move { take(futures_util::future::join_all(answers.into_iter().map(Self::wait)).await) });
    }
}

/// What the store's errors mean to a client.
#[must_use]
pub fn problem_of(error: &StoreError) -> Problem {
    match error {
        StoreError::Busy => Problem::busy("more is waiting to be written than is good"),
        StoreError::NotLeading => Problem::standby(None),
        StoreError::Stale => Problem::busy("another broker owns the run"),
        StoreError::Conflict(what) => Problem::conflict("conflict", what.clone()),
        StoreError::NotFound => Problem::not_found("it is not stored"),
        StoreError::Failed(_) | StoreError::Unknown(_) | StoreError::Unusable(_) => {
            error.disk_trouble().map_or_else(Problem::internal, Problem::disk)
        }
    }
}
