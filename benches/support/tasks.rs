//! Workers in a process of their own: this program, started again. It is asked over its standard input, a line a
//! question, and answers on its standard output.

use super::Failure;
use super::process::Process;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use webloom::sdk::{Identity, TaskContext, Worker};

/// The first argument of a process that is to work.
pub const WORK: &str = "work";
/// The name of the task.
pub const NAME: &str = "bench.task";
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(180);

/// Microseconds since 1970, the same in both processes.
#[expect(clippy::disallowed_methods, reason = "latency is measured finer than in milliseconds")]
pub fn now_us() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// The workers as the bench sees them.
pub struct Workers {
    process: Process,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    /// Tasks so far.
    tasks: u64,
}

impl Workers {
    /// Starts them and waits until they watch.
    pub fn start(broker: SocketAddr, workers: u64, slots: u64) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([WORK, &format!("http://{broker}"), &workers.to_string(), &slots.to_string()]);
        let mut process = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let ask = process.0.stdin.take().ok_or("the workers have no input")?;
        let answers = BufReader::new(process.0.stdout.take().ok_or("the workers have no output")?).lines();
        let mut workers = Self { process, ask, answers, tasks: 0 };
        match workers.answer()?.as_str() {
            "ready" => Ok(workers),
            other => Err(format!("the workers are not ready: {other}").into()),
        }
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn answer(&mut self) -> Result<String, Failure> {
        Ok(self.answers.next().ok_or("the workers ended")??)
    }

    fn ask(&mut self, question: &str) -> Result<(), Failure> {
        Ok(writeln!(self.ask, "{question}")?)
    }

    /// Waits until so many more are settled; each was begun once, and none was refused.
    pub fn wait(&mut self, tasks: u64) -> Result<(), Failure> {
        self.tasks += tasks;
        self.ask(&format!("wait {}", self.tasks))?;
        let (answer, wanted) = (self.answer()?, format!("{0} {0} 0", self.tasks));
        if answer == wanted { Ok(()) } else { Err(format!("begun, settled, refused: {answer}, not {wanted}").into()) }
    }

    /// Notes the times of each task from now on.
    pub fn record(&mut self) -> Result<(), Failure> {
        self.ask("record")
    }

    /// Run, microseconds of its begin and of its settling, of each that was recorded.
    pub fn times(&mut self) -> Result<Vec<(String, u64, u64)>, Failure> {
        self.ask("times")?;
        let mut times = Vec::new();
        loop {
            let line = self.answer()?;
            let mut words = line.split(' ');
            let (Some(identity), Some(begun), Some(settled)) = (words.next(), words.next(), words.next()) else { return Ok(times) };
            times.push((identity.to_owned(), begun.parse()?, settled.parse()?));
        }
    }
}

/// What the workers count.
#[derive(Default)]
struct Counts {
    begun: AtomicU64,
    settled: AtomicU64,
    refused: AtomicU64,
    records: AtomicBool,
    begun_us: Mutex<HashMap<Identity, u64>>,
    times: Mutex<Vec<(Identity, u64, u64)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    fn begin(&self, run: Identity) {
        self.begun.fetch_add(1, Ordering::Relaxed);
        if self.records.load(Ordering::Relaxed) {
            lock(&self.begun_us).insert(run, now_us());
        }
    }

    fn settle(&self, run: Identity, refused: bool) {
        self.refused.fetch_add(u64::from(refused), Ordering::Relaxed);
        if let Some(begun) = self.records.load(Ordering::Relaxed).then(|| lock(&self.begun_us).remove(&run)).flatten() {
            lock(&self.times).push((run, begun, now_us()));
        }
        self.settled.fetch_add(1, Ordering::Release);
    }
}

/// The program of the process: `arguments` are the broker's address, the workers and the places of each. It ends with its
/// standard input.
pub fn work(arguments: &[String]) -> Result<(), Failure> {
    let [broker, workers, slots] = arguments else { return Err("broker, workers and slots are expected".into()) };
    let (workers, slots): (u64, u32) = (workers.parse()?, slots.parse()?);
    let counts = Arc::new(Counts::default());
    let (asked, over) = (Arc::clone(&counts), oneshot::channel::<()>());
    let (stop, stopped) = over;
    actix_rt::System::new().block_on(async {
        let mut running = Vec::new();
        let mut watching = Vec::new();
        for _ in 0..workers {
            let (ready, told) = oneshot::channel();
            let (begun, settled) = (Arc::clone(&counts), Arc::clone(&counts));
            let function = move |task: TaskContext| {
                begun.begin(task.identity());
                std::future::ready(Ok(1))
            };
            let worker = Worker::new(broker.as_str()).name("bench").slots(slots).ready(ready).task(NAME, function);
            let worker = worker.on_settled(move |task| settled.settle(task.identity, task.refused.is_some()));
            running.push(actix_rt::spawn(worker.run(std::future::pending())));
            watching.push(told);
        }
        for told in watching {
            told.await?;
        }
        println!("ready");
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                answer(&line, &asked);
            }
            drop(stop);
        });
        // Whether it is told or dropped, it is over.
        drop(stopped.await);
        running.iter().for_each(|worker| worker.abort());
        Ok(())
    })
}

fn answer(question: &str, counts: &Counts) {
    let (word, number) = question.split_once(' ').unwrap_or((question, ""));
    match word {
        "wait" => {
            let (wanted, since) = (number.parse().unwrap_or(0), Instant::now());
            while counts.settled.load(Ordering::Acquire) < wanted && since.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            let [begun, settled, refused] = [&counts.begun, &counts.settled, &counts.refused].map(|count| count.load(Ordering::Acquire));
            println!("{begun} {settled} {refused}");
        }
        "record" => counts.records.store(true, Ordering::Relaxed),
        "times" => {
            for (run, begun, settled) in lock(&counts.times).drain(..) {
                println!("{run} {begun} {settled}");
            }
            println!("end");
        }
        _ => println!("what is {question}?"),
    }
}
