//! Pauses between tries: they double, with jitter so that workers do not retry in step.

use std::time::Duration;

/// A pause that grows with each try.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    next: Duration,
    least: Duration,
    most: Duration,
}

impl Backoff {
    /// The first pause is about `least`, the later ones at most `most`.
    pub(crate) fn new(least: Duration, most: Duration) -> Self {
        Self { next: least, least, most }
    }

    /// The next pause: between half and all of the present length, and not less than the other side asked for.
    pub(crate) fn pause(&mut self, asked: Option<Duration>) -> Duration {
        let whole = self.next;
        self.next = (self.next * 2).min(self.most);
        let half = whole / 2;
        let jitter = half.mul_f64(f64::from(uuid::Uuid::new_v4().as_bytes()[0]) / 255.0);
        (half + jitter).max(asked.unwrap_or_default().min(Duration::from_secs(60)))
    }

    /// Resets after a success: the next pause is short again.
    pub(crate) fn reset(&mut self) {
        self.next = self.least;
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_most() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(400));
        for whole in [100, 200, 400, 400] {
            let pause = backoff.pause(None).as_millis();
            assert!((whole / 2..=whole).contains(&pause), "{pause} of {whole}");
        }
        backoff.reset();
        assert!(backoff.pause(None) <= Duration::from_millis(100));
        assert!(backoff.pause(Some(Duration::from_secs(3))) >= Duration::from_secs(3), "what the broker asks for is kept");
    }
}
