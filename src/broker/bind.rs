//! The listen address of the broker, and the address at which others can reach it.
//!
//! The default port is in the range that Linux uses for outgoing connections. So such a connection may have it, and keeps it for
//! a minute after its end. The broker waits for that, but not for another program that listens on the port.

use super::BootError;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

/// Maximum number of connections that wait to be accepted.
const BACKLOG: u32 = 1_024;
/// Interval between two attempts, and their number: Linux keeps the port of a closed connection for 60 s.
const PAUSE: Duration = Duration::from_millis(250);
const TRIES: u32 = 280;
/// The state of a listening socket in `/proc/net/tcp`.
#[cfg(target_os = "linux")]
const LISTENS: &str = "0A";
/// An address reserved for documentation: the system returns the local address for it, and nothing is sent.
const FAR: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 1), 9);

/// Opens the listener; call it inside a runtime.
pub(super) async fn listen(address: SocketAddr) -> Result<TcpListener, BootError> {
    for nth in 0..TRIES {
        match bind(address) {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() != std::io::ErrorKind::AddrInUse => return Err(BootError::Listen(address, error)),
            Err(_) if somebody_listens(address.port()) => break,
            Err(_) => {}
        }
        if nth == 0 {
            log::warn!(
                "port held by an outgoing connection, waiting until it is free address={address} port={} most_seconds={}",
                address.port(),
                (PAUSE * TRIES).as_secs()
            );
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(BootError::PortInUse(address, address.port()))
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { tokio::net::TcpSocket::new_v4() } else { tokio::net::TcpSocket::new_v6() }?;
    // After a restart, connections of the previous broker are still in the system.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Whether any program listens on this port. If the system does not provide this, the answer is true.
fn somebody_listens(port: u16) -> bool {
    #[cfg(target_os = "linux")]
    {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
        if tables.iter().any(Result::is_ok) {
            return tables.iter().flatten().any(|table| is_listened_on(table, port));
        }
    }
    let _ = port;
    true
}

/// Whether a table of sockets has one that listens on this port.
#[cfg(target_os = "linux")]
fn is_listened_on(table: &str, port: u16) -> bool {
    let is_one = |line: &str| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().and_then(|address| address.rsplit_once(':')).and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        local == Some(port) && columns.nth(1) == Some(LISTENS)
    };
    table.lines().skip(1).any(is_one)
}

/// The URL for a broker that listens on all addresses of its machine. It contains the address that leads to the network, or with
/// TLS, whose certificate is for a name, the name of the machine. `None` if the machine has no network.
pub(super) fn reachable(listen: SocketAddr, by_tls: bool) -> Option<String> {
    let name = || {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_owned();
        (!name.is_empty() && name != "localhost").then_some(name)
    };
    let address = || {
        outgoing_address().map(|ip| SocketAddr::new(ip, 0)).map(|address| match address {
            SocketAddr::V4(address) => address.ip().to_string(),
            SocketAddr::V6(address) => format!("[{}]", address.ip()),
        })
    };
    let host = if by_tls { name().or_else(address) } else { address().or_else(name) };
    let scheme = if by_tls { "https" } else { "http" };
    host.map(|host| format!("{scheme}://{host}:{}", listen.port()))
}

fn outgoing_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(FAR).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_socket_that_listens_is_told_from_one_that_lingers() {
        let table = "  sl  local_address rem_address   st\n\
             0: 0100007F:D94A 00000000:0000 0A 00000000:00000000\n\
             1: 0100007F:D94B 0100007F:1F90 06 00000000:00000000\n";
        assert!(is_listened_on(table, 55_626));
        assert!(!is_listened_on(table, 55_627), "it only lingers");
        assert!(!is_listened_on(table, 8_080) && !is_listened_on("", 1));
    }
}
