//! A connection as the server reads and writes it. It is counted, can be cut, and is closed when its peer accepts no data.
//!
//! Without a limit, a peer that does not read would keep the data for it in memory, and its assigned work, forever.

use crate::actors::session_sender::Line;
use crate::edge::traffic::Open;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a peer may take to accept the next [`LEAST`] bytes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum number of bytes that a peer accepts in that time, if that many wait.
const LEAST: usize = 16 << 10;

/// See the module documentation.
pub(super) struct Wire<T> {
    io: T,
    pub(super) line: Arc<Line>,
    /// See [`PATIENCE`].
    limit: Duration,
    /// Runs while data waits to be written.
    patience: Option<Pin<Box<Sleep>>>,
    /// Bytes that the peer accepted since the timer started.
    taken: usize,
    /// The write half is closed.
    is_shut: bool,
    _open: Open,
}

impl<T> Wire<T> {
    pub(super) fn new(io: T, open: Open) -> Self {
        Self { io, line: Arc::default(), limit: PATIENCE, patience: None, taken: 0, is_shut: false, _open: open }
    }

    /// The underlying stream, without the check whether it is cut.
    pub(super) fn io(&mut self) -> &mut T {
        &mut self.io
    }

    /// Fails if it is cut. Wakes the caller when that changes.
    pub(super) fn look(&self, cx: &Context<'_>) -> io::Result<()> {
        if self.line.is_cut(cx.waker()) { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn wrote(&mut self, bytes: usize, of: usize) {
        self.taken += bytes;
        if bytes == of {
            self.patience = None;
        }
    }

    /// The peer accepts no data now: waits, and fails if this takes too long.
    fn wait(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let (taken, limit) = (&mut self.taken, self.limit);
        let patience = self.patience.get_or_insert_with(|| {
            *taken = 0;
            Box::pin(sleep(limit))
        });
        while patience.as_mut().poll(cx).is_ready() {
            if *taken < LEAST {
                return Err(io::ErrorKind::TimedOut.into());
            }
            *taken = 0;
            patience.as_mut().reset(Instant::now() + limit);
        }
        Ok(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Wire<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.look(cx)?;
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Wire<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.look(cx)?;
        match Pin::new(&mut self.io).poll_write(cx, bytes) {
            Poll::Ready(Ok(taken)) => {
                self.wrote(taken, bytes.len());
                Poll::Ready(Ok(taken))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.wait(cx)?;
                Poll::Pending
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Pending => {
                // TLS still has encrypted data in its buffer.
                self.look(cx)?;
                self.wait(cx)?;
                Poll::Pending
            }
            Poll::Ready(Ok(())) if self.line.is_finished() && !self.is_shut => self.poll_shutdown(cx),
            ready => {
                self.patience = None;
                ready
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.look(cx)?;
        if self.is_shut {
            // A second call fails if the peer has closed its half in the meantime.
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut self.io).poll_shutdown(cx) {
            Poll::Pending => {
                self.wait(cx)?;
                Poll::Pending
            }
            ready => {
                (self.patience, self.is_shut) = (None, true);
                ready
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::traffic::Traffic;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    const LIMIT: Duration = Duration::from_millis(300);

    fn wire(io: tokio::io::DuplexStream) -> Wire<tokio::io::DuplexStream> {
        Wire { limit: LIMIT, ..Wire::new(io, Traffic::default().connection()) }
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let traffic = Traffic::default();
        let (io, _deaf) = duplex(1_000);
        let mut wire = Wire { limit: LIMIT, ..Wire::new(io, traffic.connection()) };
        let began = Instant::now();
        let error = wire.write_all(&[0; 5_000]).await.expect_err("nobody reads");
        assert!(error.kind() == io::ErrorKind::TimedOut && began.elapsed() >= LIMIT, "{error}");
        drop(wire);
        assert_eq!(traffic.connections_over(Duration::ZERO).await, 0);
    }

    #[tokio::test]
    async fn a_slow_peer_gets_all() {
        let (io, mut slow) = duplex(4_000);
        let mut wire = wire(io);
        let writes = tokio::spawn(async move { wire.write_all(&[0; 400_000]).await });
        let mut piece = [0; 4_000];
        let began = Instant::now();
        for _ in 0..100 {
            sleep(LIMIT / 30).await;
            slow.read_exact(&mut piece).await.expect("it goes on");
        }
        writes.await.expect("no panic").expect("it is patient");
        assert!(began.elapsed() > LIMIT, "it was not slow");
    }

    #[tokio::test]
    async fn few_bytes_now_and_then_are_not_enough() {
        let (io, mut slow) = duplex(1_000);
        let mut wire = wire(io);
        let writes = tokio::spawn(async move { wire.write_all(&[0; 200_000]).await.map_err(|e| e.kind()) });
        let mut piece = [0; 10];
        while !writes.is_finished() && slow.read_exact(&mut piece).await.is_ok() {
            sleep(LIMIT / 10).await;
        }
        assert_eq!(writes.await.expect("no panic"), Err(io::ErrorKind::TimedOut));
    }

    #[tokio::test]
    async fn the_write_half_closes_after_the_last_bytes_and_the_peer_may_still_send() {
        let (io, mut peer) = duplex(10);
        let mut wire = Wire::new(io, Traffic::default().connection());
        wire.line.finish();
        let reads = tokio::spawn(async move {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).await.expect("the end, and not an error");
            peer.write_all(b"late").await.expect("the other half is open");
            all
        });
        wire.write_all(&[7; 1_000]).await.expect("they are sent");
        wire.flush().await.expect("it is flushed");
        let mut late = Vec::new();
        wire.read_to_end(&mut late).await.expect("the peer's end");
        assert_eq!((late, reads.await.expect("no panic").len()), (b"late".to_vec(), 1_000));
        wire.shutdown().await.expect("twice does no harm");
    }

    #[tokio::test]
    async fn a_line_that_is_cut_ends_what_waits() {
        let (io, _peer) = duplex(10);
        let mut wire = Wire::new(io, Traffic::default().connection());
        let line = Arc::clone(&wire.line);
        let reads = tokio::spawn(async move { wire.read_u8().await.map_err(|e| e.kind()) });
        tokio::task::yield_now().await;
        line.cut();
        assert_eq!(reads.await.expect("no panic"), Err(io::ErrorKind::ConnectionAborted));
    }
}
