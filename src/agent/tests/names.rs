//! Names, against a name server that counts its queries.

#[path = "../../../tests/it/support/dns.rs"]
mod dns;

use crate::domain::name_servers::NameServers;
use crate::names::Names;
use dns::NameServer;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

#[actix_rt::test]
async fn an_answer_is_kept_as_long_as_it_allows() {
    let server = NameServer::start(|name| match name {
        "long.test" => Some((Ipv4Addr::new(127, 0, 0, 7), 300)),
        "short.test" => Some((Ipv4Addr::new(127, 0, 0, 7), 1)),
        _ => None,
    });
    let names = Names::new(NameServers::Listed(vec![server.address]));
    let address = [IpAddr::from(Ipv4Addr::new(127, 0, 0, 7))];
    for name in ["long.test", "short.test"] {
        assert_eq!(names.lookup(name).await.expect("an address"), address);
        assert_eq!(server.asked(name), 1);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.asked("short.test") < 2 {
        assert_eq!(names.lookup("short.test").await.expect("an address"), address);
        assert!(Instant::now() < deadline, "it is never asked again");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(names.lookup("long.test").await.expect("an address"), address);
    assert_eq!(server.asked("long.test"), 1, "it may be kept for 300 s");
    for _ in 0..2 {
        let error = names.lookup("none.test").await.expect_err("there is no such name");
        assert_eq!(error.to_string(), "there is no such name");
    }
    assert_eq!(server.asked("none.test"), 1, "that there is no such name is kept, too");
    assert!(names.lookup("localhost").await.expect("this machine").iter().all(IpAddr::is_loopback));
}
