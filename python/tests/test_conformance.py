"""The checks of workers and nodes in any language: the examples and the agent pass them, and programs with faults do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from support import HERE, NODE, NODE_WORKER, WITHOUT_NODE
from webloom.conformance import main
from webloom.testing import find_binary

#: What other tests do not check. By hand all of these workers pass all checks.
CHECKS = ["--check", "lost-answer", "--check", "503"]
# Each check starts a broker and waits for it and for the worker.
pytestmark = pytest.mark.timeout(300)
EXAMPLES = HERE.parents[1] / "examples"
HTTP_NODE = EXAMPLES / "http_node.py"
RUST_EXAMPLE = Path(find_binary()).with_name("examples") / "tasks"
#: Of the checks of nodes: the one of `heartbeats` takes 14 seconds, and other tests check the rest of them.
NODE_CHECKS = [f"--check={name}" for name in ("outcomes", "lost-answer", "503")]


@pytest.mark.skipif(NODE is None or NODE_WORKER is None, reason=WITHOUT_NODE)
def test_the_example_for_node_conforms(capsys: pytest.CaptureFixture[str]) -> None:
    slow, long = 'node.walk={"steps": 20, "pause": 100}', 'node.walk={"steps": 900}'
    tasks = ["--quick", "node.sum=[1, 2]", "--slow", slow, "--long", long]
    assert main([*CHECKS, *tasks, "--", str(NODE), str(NODE_WORKER)]) == 0, capsys.readouterr().out


def test_the_example_of_the_package_conforms(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = ["--quick", 'text.words="a b a"', "--slow", 'demo.walk={"steps": 3}', "--long", 'demo.walk={"steps": 900}']
    example = EXAMPLES / "python" / "tasks.py"
    assert main(["worker", "--check", "lost-answer", *tasks, "--", sys.executable, str(example)]) == 0, capsys.readouterr().out


@pytest.mark.skipif(not RUST_EXAMPLE.exists(), reason="examples/tasks.rs is not compiled beside the program `webloom`")
def test_the_example_in_rust_conforms(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = ["--quick", "demo.sum=[1, 2]", "--slow", 'demo.walk={"steps": 3}', "--long", 'demo.walk={"steps": 900}']
    assert main(["--check", "lost-answer", *tasks, "--", str(RUST_EXAMPLE)]) == 0, capsys.readouterr().out


def test_a_worker_with_faults_is_told_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = ["--quick", "good", "--slow", 'slow={"seconds": 4}', "--long", 'slow={"seconds": 100}']
    command = [sys.executable, str(HERE / "programs" / "faulty_worker.py")]
    assert main(["--check", "hello", "--check", "lease", *tasks, "--", *command]) == 1
    lines = capsys.readouterr().out
    assert "ok     hello" in lines
    assert "FAILED lease" in lines
    assert "send a heartbeat that names the task every third of its lease" in lines
    assert "1 of 2 checks failed" in lines


def test_the_example_of_a_node_conforms(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["node", *NODE_CHECKS, "--", sys.executable, str(HTTP_NODE)]) == 0, capsys.readouterr().out


def test_the_agent_conforms(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    agent = [find_binary(), "agent", "--data-dir", str(tmp_path)]
    assert main(["node", *NODE_CHECKS, "--", *agent]) == 0, capsys.readouterr().out


def test_a_node_with_faults_is_told_what_is_wrong(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    faulty = tmp_path / "node.py"
    # It takes half a body for a whole one.
    text = HTTP_NODE.read_text()
    assert text.count("elif answer.length:") == 1
    faulty.write_text(text.replace("elif answer.length:", "elif False:"))
    assert main(["node", "--check", "hello", "--check", "outcomes", "--", sys.executable, str(faulty)]) == 1
    lines = capsys.readouterr().out
    assert "ok     hello" in lines
    assert "FAILED outcomes" in lines
    assert "/cut brings no whole answer, so its report needs an `error`" in lines
