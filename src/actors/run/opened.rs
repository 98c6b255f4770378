//! Reports of which a run reads more than the index. They are opened before the run gets them: its thread unpacks nothing.

use super::robots;
use crate::domain::redirect::is_redirect;
use crate::protocol::pack::{Entry, Index, Opened, open};
use bytes::Bytes;

/// Maximum bytes of a pack that is opened to find the targets; only nodes of earlier versions do not report them in the index.
const MOST_OPENED: usize = 64 << 20;
/// Bytes that are unpacked on the thread of the caller: less than a millisecond of work.
const INLINE: usize = 64 << 10;

/// Whether a redirect is reported without its target.
pub(super) fn lacks_target(entry: &Entry) -> bool {
    is_redirect(entry.status) && entry.error.is_none() && entry.location.is_none()
}

/// Maximum bytes that are unpacked of a report; `None`: its index is enough.
fn most(index: &Index) -> Option<usize> {
    if index.block_id.seq_in(index.identity).is_some_and(robots::is_of_robots) {
        return Some(robots::MOST_OPENED);
    }
    index.results.iter().any(lacks_target).then_some(MOST_OPENED)
}

/// The results of a report, if its run reads them. Empty if they cannot be read: then the run decides by the index.
pub async fn opened(index: &Index, pack: &Bytes) -> Vec<Opened> {
    let Some(most) = most(index) else { return Vec::new() };
    let bytes: usize = index.results.iter().map(|entry| entry.head as usize + entry.body as usize).sum();
    let pack = pack.clone();
    let read = move || open(&pack, most).map(|(_, results)| results).unwrap_or_default();
    match bytes {
        ..=INLINE => read(),
        _ => tokio::task::spawn_blocking(read).await.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fingerprint::Fingerprint;
    use crate::domain::ids::{BlockId, Identity, NodeId, Seq};
    use crate::protocol::pack::{Builder, Head};

    fn report(seq: Seq, status: u16, location: Option<&str>, body: usize) -> (Index, Bytes) {
        let identity = Identity::random();
        let mut builder = Builder::new(Index::new(BlockId::new(identity, seq), identity, NodeId::random()));
        let request_id = Fingerprint::of("GET", "http://example.org/", b"");
        let entry = Entry { request_id, status, tries: 1, time: 1, error: None, location: location.map(str::to_owned), head: 0, body: 0 };
        builder.push(entry, &Head { headers: vec![("Location".into(), "/b".into())], ..Head::default() }, &vec![7; body]);
        (builder.index().clone(), Bytes::from(builder.finish()))
    }

    #[test]
    fn only_what_a_run_reads_is_opened_before_it_gets_it() {
        actix::System::new().block_on(async {
            let lengths = async |(index, pack): (Index, Bytes)| -> Vec<usize> {
                opened(&index, &pack).await.iter().map(|result| result.body.len()).collect()
            };
            assert_eq!(lengths(report(1, 200, None, 10)).await, [0; 0]);
            assert_eq!(lengths(report(1, 301, Some("http://example.org/b"), 10)).await, [0; 0], "the index has the target");
            assert_eq!(lengths(report(1, 301, None, 10)).await, [10]);
            assert_eq!(lengths(report(1, 301, None, 2 * INLINE)).await, [2 * INLINE], "on another thread");
            assert_eq!(lengths(report(robots::FIRST_PROBE, 200, None, 10)).await, [10], "a robots.txt");
            assert_eq!(lengths(report(robots::FIRST_PROBE, 200, None, robots::MOST_OPENED)).await, [0; 0], "it is too large");
            let (index, _) = report(1, 301, None, 10);
            assert!(opened(&index, &Bytes::from_static(b"no pack")).await.is_empty());
        });
    }
}
