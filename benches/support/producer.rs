//! Pushes requests of about 300 bytes in calls of a hundred, each with an address that no other has.

use super::http::Http;
use super::run::{Run, micros};
use std::error::Error;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const DIGITS: usize = 12;

/// One push call, written once; later calls change only the digits.
struct Template {
    body: Vec<u8>,
    digits: Vec<usize>,
}

impl Template {
    fn new(requests: usize) -> Self {
        let (mut body, mut digits) = (Vec::new(), Vec::new());
        for i in 0..requests {
            body.push(if i == 0 { b'[' } else { b',' });
            body.extend_from_slice(b"{\"url\":\"http://web.localhost/catalogue/section-");
            body.extend_from_slice(format!("{:02}/item-", i % 37).as_bytes());
            digits.push(body.len());
            body.extend_from_slice(&[b'0'; DIGITS]);
            body.extend_from_slice(
                b"/index.html?view=full&page=1\",\"depth\":3,\"headers\":{\"Accept\":\"text/html,application/xhtml+xml\",",
            );
            body.extend_from_slice(b"\"Referer\":\"http://web.localhost/catalogue/index.html\"},\"meta\":{\"parent\":\"/catalogue/\",");
            body.extend_from_slice(b"\"anchor\":\"next item of this section\"}}");
        }
        body.push(b']');
        Self { body, digits }
    }

    fn number_from(&mut self, first: u64) {
        for (n, &at) in (first..).zip(&self.digits) {
            let mut rest = n;
            for digit in self.body[at..at + DIGITS].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
        }
    }
}

/// Pushes until the run's total is reached; the microseconds of each call.
pub fn produce(run: &Run) -> Result<Vec<u32>, Box<dyn Error + Send + Sync>> {
    let mut http = Http::connect(run.address)?;
    let mut template = Template::new(run.batch);
    let head = format!("POST /requestqueue/{} HTTP/1.1\r\nContent-Type: application/json\r\n", run.identity);
    let mut calls = Vec::new();
    loop {
        let batch = run.next_batch.fetch_add(1, Ordering::Relaxed);
        if batch >= run.batches {
            return Ok(calls);
        }
        run.wait_for_room(batch);
        template.number_from(batch * run.batch as u64);
        let begun = Instant::now();
        loop {
            let answer = http.call(&head, &[&template.body])?;
            match answer.status {
                200 => {
                    run.note_pushed(answer.body, begun);
                    break;
                }
                503 => run.busy.fetch_add(1, Ordering::Relaxed),
                status => return Err(format!("a push was answered {status}: {}", String::from_utf8_lossy(answer.body)).into()),
            };
            std::thread::sleep(Duration::from_millis(5));
        }
        calls.push(micros(begun));
    }
}
