//! Keeps the port of a broker on this machine free of outgoing connections.
//!
//! The default port is in the range from which Linux takes ports of outgoing connections, and an agent makes many. A socket that is bound
//! to a port, without listening or connecting, keeps the system from using that port; a broker, which sets the option to share its
//! address, can still listen there.

use crate::config::addresses::Addresses;
use crate::protocol::PORT;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpSocket;

/// Sockets that reserve ports while they exist. A port that cannot be reserved is skipped silently: it is already in use.
pub fn keep_free(brokers: &Addresses) -> Vec<TcpSocket> {
    let is_here = |url: &&url::Url| match url.host() {
        Some(url::Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    let own = brokers.all().filter(is_here).filter_map(url::Url::port_or_known_default);
    // A broker may be started on the default port, whatever this agent's settings are.
    own.chain([PORT]).collect::<BTreeSet<u16>>().into_iter().filter_map(keep).collect()
}

fn keep(port: u16) -> Option<TcpSocket> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.set_reuseaddr(true).ok()?;
    socket.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).ok()?;
    Some(socket)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_kept_port_can_be_listened_on_and_is_not_given_to_connections() {
        let listen = |port: u16| {
            let socket = TcpSocket::new_v4().expect("a socket");
            socket.set_reuseaddr(true).expect("an option");
            socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).and_then(|()| socket.listen(8))
        };
        let first = listen(0).expect("any port");
        let port = first.local_addr().expect("an address").port();
        drop(first);
        let brokers: Addresses = format!("http://localhost:{port},http://192.0.2.1:{port}").parse().expect("addresses");
        let kept = keep_free(&brokers);
        let ports: Vec<u16> = kept.iter().filter_map(|socket| Some(socket.local_addr().ok()?.port())).collect();
        assert!(ports.contains(&port) && ports.iter().all(|kept| [port, PORT].contains(kept)), "only those of this machine: {ports:?}");
        let broker = listen(port).expect("a broker can listen there");
        drop(broker);
        listen(port).expect("and again");
    }
}
