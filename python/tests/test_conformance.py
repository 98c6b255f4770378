"""The checks of workers in any language: the example for Node.js passes them, and a worker with faults does not."""

from __future__ import annotations

import sys

import pytest

from support import HERE, NODE, NODE_WORKER, WITHOUT_NODE
from webloom.conformance import main

#: What the other tests of examples/node do not check.
CHECKS = ["--check", "lost-answer", "--check", "503"]


@pytest.mark.skipif(NODE is None or NODE_WORKER is None, reason=WITHOUT_NODE)
def test_the_example_for_node_conforms(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [
        "--quick",
        "node.sum=[1, 2]",
        "--slow",
        'node.walk={"steps": 20, "pause": 100}',
        "--long",
        'node.walk={"steps": 900}',
    ]
    assert main([*CHECKS, *tasks, "--", str(NODE), str(NODE_WORKER)]) == 0, capsys.readouterr().out


def test_a_worker_with_faults_is_told_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = ["--quick", "good", "--slow", 'slow={"seconds": 4}', "--long", 'slow={"seconds": 100}']
    command = [sys.executable, str(HERE / "programs" / "faulty_worker.py")]
    assert main(["--check", "hello", "--check", "lease", *tasks, "--", *command]) == 1
    lines = capsys.readouterr().out
    assert "ok     hello" in lines
    assert "FAILED lease" in lines
    assert "send a heartbeat that names the task every third of its lease" in lines
    assert "1 of 2 checks failed" in lines
