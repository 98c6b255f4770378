//! Response bodies: counted against the budget until they are sent, with a delivery receipt where one is needed.

use crate::actors::budget::Charge;
use crate::service::Receipt;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use bytes::Bytes;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Bytes that are passed to a connection at once.
const PIECE: usize = 64 << 10;
/// Memory of a streamed response: one piece of a file, or some pages of a log.
pub const OF_A_STREAM: usize = 384 << 10;

/// Marks a streamed response whose length is known.
#[derive(Debug, Clone, Copy)]
pub struct IsStreamed;

/// A body whose delivery is tracked. A connection asks for the end of a body only when all but some kilobytes before it are sent.
pub struct Traced {
    rest: Bytes,
    receipt: Option<Receipt>,
}

impl Traced {
    /// A body and the receipt to resolve when all of it is read.
    pub fn new(body: Vec<u8>, receipt: Option<Receipt>) -> Self {
        Self { rest: body.into(), receipt }
    }
}

impl MessageBody for Traced {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Sized(self.rest.len() as u64)
    }

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, Infallible>>> {
        if self.rest.is_empty() {
            if let Some(receipt) = self.receipt.take() {
                receipt.arrived();
            }
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(self.rest.split_to(length))))
    }
}

/// A body that counts against the budget until it is sent or dropped.
pub struct Counted {
    body: BoxBody,
    _charge: Option<Charge>,
}

impl Counted {
    /// A body and the charge that is held with it.
    pub fn new(body: BoxBody, charge: Option<Charge>) -> Self {
        Self { body, _charge: charge }
    }
}

impl MessageBody for Counted {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }

    fn try_into_bytes(self) -> Result<Bytes, Self> {
        let Self { body, _charge } = self;
        body.try_into_bytes().map_err(|body| Self { body, _charge })
    }
}
