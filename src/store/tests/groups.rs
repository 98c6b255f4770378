//! What follows a group that gets a new name.

use super::*;
use crate::domain::ids::GroupId;

/// Gives a new group another name.
async fn rename(store: &Store, old: &str, new: &str) -> Vec<JobId> {
    let group = Group {
        id: GroupId::random(),
        name: old.to_owned(),
        description: None,
        create_by: None,
        update_by: None,
        creation_time: T,
        update_time: T,
    };
    store.write(InsertGroup(group.clone())).await.expect("made");
    store.write(UpdateGroup(Group { name: new.to_owned(), ..group })).await.expect("renamed").0
}

#[test]
fn block_jobs_ask_for_workers_by_the_new_name() {
    with_store(|store, _| async move {
        let named = |name: &str, key: &str, value: &str| {
            let mut job = job(name);
            job.properties.0.insert(key.to_owned(), value.to_owned());
            job
        };
        let asks = named("asks", "WORKER_GROUP", "Night");
        let other = named("other", "WorkerGroup", "nightly");
        let nodes = named("nodes", "NodeGroup", "night");
        for job in [&asks, &other, &nodes] {
            store.write(InsertJob { job: job.clone(), next_at: None }).await.expect("made");
        }
        assert_eq!(rename(&store, "night", "evening").await, [asks.id]);
        let mut expected = asks;
        expected.properties.0.insert("WORKER_GROUP".to_owned(), "evening".to_owned());
        expected.version = 2;
        for job in [expected, other, nodes] {
            assert_eq!(store.read(GetJob(job.id)).await, Ok(Some(job)));
        }
    });
}

#[test]
fn alert_channels_follow_the_new_name() {
    with_store(|store, _| async move {
        let channel = |groups: &[&str]| {
            let named = groups.iter().map(|group| (*group).to_owned()).collect();
            new_channel(&groups.join(" "), Filter { groups: named, ..Filter::default() })
        };
        let (theirs, other) = (channel(&["day", "night"]), channel(&["day"]));
        for channel in [&theirs, &other] {
            store.write(InsertChannel(channel.clone())).await.expect("made");
        }
        rename(&store, "night", "evening").await;
        let now = async |of: &Channel| store.read(GetChannel(of.id)).await.expect("a look").expect("a channel");
        assert_eq!((now(&theirs).await.filter.groups, now(&theirs).await.version), (vec!["day".to_owned(), "evening".to_owned()], 2));
        assert_eq!((now(&other).await.filter, now(&other).await.version), (other.filter, 1));
    });
}
