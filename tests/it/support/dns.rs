//! A name server on loopback that counts its queries.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};

/// Types of records: an IPv4 address, and what says how long there is no such name.
const A: u16 = 1;
const SOA: u16 = 6;
/// How long an answer that there is no such name may be kept.
const NO_NAME_TTL: u32 = 300;

/// The address of a name, and how many seconds it may be kept.
pub type Known = Option<(Ipv4Addr, u32)>;

/// A name server.
pub struct NameServer {
    pub address: SocketAddr,
    counts: Arc<Mutex<HashMap<String, usize>>>,
}

impl NameServer {
    /// Answers from a thread of its own, until the process ends.
    pub fn start(known: impl Fn(&str) -> Known + Send + 'static) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = socket.local_addr().expect("an address");
        let counts: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counted = Arc::clone(&counts);
        std::thread::spawn(move || {
            let mut buffer = [0; 1_500];
            while let Ok((size, from)) = socket.recv_from(&mut buffer) {
                let Some((name, kind, question)) = question(&buffer[..size]) else { continue };
                if kind == A {
                    *counted.lock().expect("the counts").entry(name.clone()).or_default() += 1;
                }
                drop(socket.send_to(&answer(&buffer[..2], question, kind, known(&name)), from));
            }
        });
        Self { address, counts }
    }

    /// Queries for the IPv4 address of a name.
    pub fn asked(&self, name: &str) -> usize {
        self.counts.lock().expect("the counts").get(name).copied().unwrap_or(0)
    }
}

/// The name, the type and the bytes of the question of a query: RFC 1035, section 4.
fn question(query: &[u8]) -> Option<(String, u16, &[u8])> {
    let (mut at, mut labels) = (12, Vec::new());
    while let Some(length @ 1..) = query.get(at).copied() {
        labels.push(String::from_utf8_lossy(query.get(at + 1..at + 1 + usize::from(length))?).to_ascii_lowercase());
        at += 1 + usize::from(length);
    }
    let kind = u16::from_be_bytes([*query.get(at + 1)?, *query.get(at + 2)?]);
    Some((labels.join("."), kind, query.get(12..at + 5)?))
}

fn answer(id: &[u8], question: &[u8], kind: u16, known: Known) -> Vec<u8> {
    let address = known.filter(|_| kind == A);
    let mut answer = id.to_vec();
    // A response, recursion available; 3: there is no such name.
    answer.extend([0x81, if known.is_some() { 0x80 } else { 0x83 }, 0, 1]);
    answer.extend([0, u8::from(address.is_some()), 0, u8::from(address.is_none()), 0, 0]);
    answer.extend(question);
    let mut record = |of: &[u8], kind: u16, ttl: u32, data: &[u8]| {
        answer.extend(of);
        answer.extend(kind.to_be_bytes());
        answer.extend([0, 1]);
        answer.extend(ttl.to_be_bytes());
        answer.extend(u16::try_from(data.len()).expect("short").to_be_bytes());
        answer.extend(data);
    };
    match address {
        Some((address, ttl)) => record(&[0xc0, 12], A, ttl, &address.octets()),
        None => {
            // The root is said to know it; the last number is how long.
            let mut soa = vec![0, 0];
            [1, 300, 300, 300, NO_NAME_TTL].iter().for_each(|number: &u32| soa.extend(number.to_be_bytes()));
            record(&[0], SOA, NO_NAME_TTL, &soa);
        }
    }
    answer
}
