//! Which messages of alerts are sent next.

use super::super::op::Tx;
use super::*;
use std::collections::HashMap;

/// Stores events.
#[derive(Debug)]
struct Happens(Vec<NewEvent>);

impl WriteOp for Happens {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        super::super::alerts::insert_all(tx.conn, &self.0)
    }
}

async fn channel(store: &Store, event: &str) -> ChannelId {
    let channel = new_channel(event, Filter { events: vec![event.to_owned()], ..Filter::default() });
    let id = channel.id;
    store.write(InsertChannel(channel)).await.expect("inserted");
    id
}

#[test]
fn a_busy_channel_does_not_hide_the_messages_of_others() {
    with_store(|store, _| async move {
        let (slow, other) = (channel(&store, "failed").await, channel(&store, "silent").await);
        // More than one call looks at.
        let mut events: Vec<_> = (0..300).map(|_| NewEvent::new("failed", (JobId::random(), "j", None), None, T, "x")).collect();
        events.push(NewEvent::new("silent", (JobId::random(), "j", None), None, T, "x"));
        store.write(Happens(events)).await.expect("stored");
        while store.write(ExpandEvents { gather_ms: 60_000, now: T }).await.expect("expanded") {}
        let claim = |busy: usize| ClaimAlerts { now: T, limit: 8, busy: HashMap::from([(slow, busy)]), most_per_channel: 4 };
        let claimed = store.write(claim(4)).await.expect("claimed");
        assert_eq!(claimed.iter().map(|message| message.channel.id).collect::<Vec<_>>(), [other]);
        let claimed = store.write(claim(1)).await.expect("claimed");
        assert_eq!(claimed.iter().map(|message| message.channel.id).collect::<Vec<_>>(), [slow; 3], "up to its limit");
    });
}
