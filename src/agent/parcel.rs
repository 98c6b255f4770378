//! A report to be posted: a pack whose index is written at each post, with the memory reserved for its results.

use super::memory::Share;
use super::pace::SiteClock;
use crate::domain::ids::Identity;
use crate::protocol::pack::{Index, head};
use actix_http::body::{BodySize, MessageBody};
use bytes::Bytes;
use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Bytes that are written to a connection at once; passing the whole body would copy all of it.
const PIECE: usize = 64 << 10;

/// A report of a block, or a part of one.
pub struct Parcel {
    index: Index,
    frame: Bytes,
    /// For a block with a pace: the site data.
    clock: Option<Rc<SiteClock>>,
    /// Reserved until the broker gives a final response.
    _shares: Vec<Share>,
}

impl Parcel {
    /// From the two halves of a pack.
    #[must_use]
    pub fn new(index: Index, frame: Vec<u8>, clock: Option<Rc<SiteClock>>, shares: Vec<Share>) -> Self {
        Self { index, frame: frame.into(), clock, _shares: shares }
    }

    /// Whether more parts follow.
    #[must_use]
    pub fn is_part(&self) -> bool {
        self.index.part
    }

    /// The run of the block.
    #[must_use]
    pub fn run(&self) -> Identity {
        self.index.identity
    }

    /// The pack with the present site data.
    #[must_use]
    pub fn body(&self) -> Body {
        let head = match &self.clock {
            Some(clock) => {
                let mut news = clock.news();
                // Only the last report contains it.
                news.retry_after.take_if(|_| self.is_part());
                head(&Index { site: Some(news), ..self.index.clone() })
            }
            None => head(&self.index),
        };
        Body { head: head.into(), frame: self.frame.clone() }
    }
}

/// The bytes of a pack, in pieces.
pub struct Body {
    head: Bytes,
    frame: Bytes,
}

impl Body {
    /// Bytes that are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + self.frame.len()
    }
}

impl MessageBody for Body {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        let this = &mut *self;
        let rest = if this.head.is_empty() { &mut this.frame } else { &mut this.head };
        let piece = rest.split_to(rest.len().min(PIECE));
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}
