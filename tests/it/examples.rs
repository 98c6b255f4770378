//! What the examples promise, where a broker that works does not show it.

use std::path::Path;
use std::process::Command;

/// A heartbeat that is answered is not enough: the messages after it may say that the task is another worker's.
const BEGINS: &str = r#"
import importlib.util, sys
spec = importlib.util.spec_from_file_location("tasks", sys.argv[1])
tasks = importlib.util.module_from_spec(spec)
sys.argv = ["tasks.py", "http://127.0.0.1:9"]
spec.loader.exec_module(tasks)

def worker(poll):
    tasks.call = lambda method, path, body=None, timeout=90: (204, None) if path.endswith("heartbeat") else poll
    worker = tasks.Worker()
    worker.id = "w"
    order = {"identity": "r", "attempt": 1, "handler": "python.sum", "arguments": [1], "lease": 10_000}
    worker.take({"t": "tasks", "v": [order]})
    task = next(iter(worker.tasks.values()))
    worker.begin_new()
    return task.begun

cancel = {"t": "cancel", "v": {"task": {"identity": "r", "attempt": 1}, "reason": "given away"}}
print(worker((0, None)), worker((503, None)), worker((200, [cancel])), worker((204, None)))
"#;

#[test]
fn the_example_of_tasks_begins_nothing_when_its_poll_fails() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/tasks.py");
    let ran = Command::new("python3").args(["-c", BEGINS]).arg(example).output().expect("python3 runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(said.trim(), "False False False True", "{}", String::from_utf8_lossy(&ran.stderr));
}
