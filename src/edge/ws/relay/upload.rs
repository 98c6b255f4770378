//! What the client of a passed-on socket sends: what each leader gets begins with a whole message.

use crate::protocol::ws_header::{FrameTracker, is_close};
use actix_web::web;
use awc::BoxedSocket;
use bytes::Bytes;
use futures_util::future::{FutureExt as _, LocalBoxFuture};
use futures_util::stream::StreamExt as _;
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, WriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// How long the leader may take to send its last frame when the client has left.
const LAST_FRAME: Duration = Duration::from_secs(5);

/// Where messages of the client go.
pub(super) enum Sink {
    /// To another broker.
    Leader(WriteHalf<BoxedSocket>),
    /// To a session of this broker.
    Session(mpsc::Sender<Bytes>),
}

impl Sink {
    /// Sends a piece; returns whether more can be sent.
    async fn send(&mut self, piece: Bytes) -> bool {
        match self {
            Self::Leader(to) => to.write_all(&piece).await.is_ok() && to.flush().await.is_ok(),
            Self::Session(to) => to.send(piece).await.is_ok(),
        }
    }

    /// The leader learns that the client has left, and closes its half.
    async fn end(self) {
        if let Self::Leader(mut to) = self {
            // Its end is as good.
            let _ = to.shutdown().await;
        }
    }
}

/// The task that passes on what the client sends; it ends with the connection of the client.
pub(super) struct Upload {
    sinks: mpsc::UnboundedSender<Option<Sink>>,
    task: AbortHandle,
    /// Completes some time after the client has left. A leader that works answers the last frame and closes its half; one that hangs does not.
    pub(super) client_left: LocalBoxFuture<'static, ()>,
}

impl Upload {
    pub(super) fn begin(payload: web::Payload) -> Self {
        let (sinks, next_sinks) = mpsc::unbounded_channel();
        let task = actix_web::rt::spawn(upload(payload, next_sinks));
        Self { sinks, task: task.abort_handle(), client_left: task.then(|_| sleep(LAST_FRAME)).boxed_local() }
    }

    /// Whether the client has left, as far as it is known.
    pub(super) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Sends to this leader from now on, beginning with a whole message; `None`: to none.
    pub(super) fn use_sink(&self, sink: Option<Sink>) {
        // The task has ended if the client has left.
        let _ = self.sinks.send(sink);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends what comes from the client, until it leaves. While no leader is connected, nothing is read.
async fn upload(mut payload: web::Payload, mut sinks: mpsc::UnboundedReceiver<Option<Sink>>) {
    let mut tracker = FrameTracker::default();
    let mut sink: Option<Sink> = None;
    // The leader lacks the beginning of the present message.
    let mut is_inside = false;
    let mut has_closed = false;
    while !(has_closed && tracker.is_between_frames()) {
        let piece = tokio::select! {
            biased;
            next = sinks.recv() => {
                let Some(next) = next else { return };
                (sink, is_inside) = (next, !tracker.is_between_messages());
                continue;
            }
            piece = payload.next(), if sink.is_some() => piece,
        };
        let Some(Ok(piece)) = piece else { break };
        let mut passed_from = (!is_inside).then_some(0);
        let mut at = 0;
        while at < piece.len() {
            if is_inside && tracker.is_between_messages() {
                (is_inside, passed_from) = (false, Some(at));
            }
            has_closed |= tracker.is_between_frames() && is_close(piece[at]);
            at += tracker.advance(&piece[at..]);
        }
        let (Some(from), Some(to)) = (passed_from, &mut sink) else { continue };
        tokio::select! {
            biased;
            next = sinks.recv() => {
                let Some(next) = next else { return };
                (sink, is_inside) = (next, !tracker.is_between_messages());
            }
            can_continue = to.send(piece.slice(from..)) => {
                if !can_continue {
                    sink = None;
                }
            }
        }
    }
    if let Some(sink) = sink {
        // A leader that hangs may not take the end.
        let _ = timeout(LAST_FRAME, sink.end()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::FromRequest as _;
    use futures_util::stream;

    /// A client whose bytes go to one leader after the other.
    #[actix_web::test]
    async fn what_a_leader_gets_begins_with_a_whole_message() {
        let (client, bytes) = mpsc::channel::<Bytes>(1);
        let bytes = stream::unfold(bytes, async |mut bytes| Some((Ok(bytes.recv().await?), bytes)));
        let mut payload = actix_web::dev::Payload::Stream { payload: bytes.boxed_local() };
        let request = actix_web::test::TestRequest::default().to_http_request();
        let upload = Upload::begin(web::Payload::from_request(&request, &mut payload).await.expect("a payload"));
        let leader = || {
            let (sink, got) = mpsc::channel(10);
            upload.use_sink(Some(Sink::Session(sink)));
            got
        };
        // There is room again when it is taken.
        let says = async |bytes: Vec<u8>| {
            client.send(Bytes::from(bytes)).await.expect("it is read");
            drop(client.reserve().await.expect("it is read"));
        };
        let masked = |letter: u8| [0x81, 0x81, 0, 0, 0, 0, letter];
        let mut first = leader();
        // Before the leader has sent anything.
        says(masked(b'a').to_vec()).await;
        says(masked(b'b')[..4].to_vec()).await;
        assert_eq!(first.recv().await, Some(Bytes::copy_from_slice(&masked(b'a'))));
        assert_eq!(first.recv().await, Some(Bytes::copy_from_slice(&masked(b'b')[..4])));
        upload.use_sink(None);
        assert_eq!(first.recv().await, None);
        // It waits for the next leader, which does not get the rest of what the first one has got a part of.
        client.send(Bytes::from([&masked(b'b')[4..], &masked(b'c')].concat())).await.expect("there is room");
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        assert!(client.try_send(Bytes::new()).is_err(), "it is not read yet");
        let mut second = leader();
        assert_eq!(second.recv().await, Some(Bytes::copy_from_slice(&masked(b'c'))));
        // After a close frame nothing more comes.
        let close = [0x88, 0x80, 0, 0, 0, 0];
        client.send(Bytes::copy_from_slice(&close)).await.expect("it is read");
        assert_eq!(second.recv().await, Some(Bytes::copy_from_slice(&close)));
        assert_eq!(second.recv().await, None);
    }
}
