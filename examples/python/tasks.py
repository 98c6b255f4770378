"""A worker with two tasks: a function and a coroutine function.

    pip install ./python
    python examples/python/tasks.py

It finds the broker by WEBLOOM_BROKER and WEBLOOM_TOKEN.
"""

import asyncio
import collections
import logging

from webloom import TaskContext, Worker

worker = Worker(slots=8)


@worker.task("text.words")
def words(text: str) -> dict[str, int]:
    """Counts words. The log lines of a task are in the log of its run."""
    logging.info("counting the words of %d characters", len(text))
    return dict(collections.Counter(text.split()))


@worker.task("demo.walk")
async def walk(ctx: TaskContext, steps: int = 3) -> str:
    """Takes a second for each step, and shows how far it is."""
    for step in range(1, steps + 1):
        await asyncio.sleep(1)
        ctx.progress(100 * step / steps, f"step {step} of {steps}")
    return f"walked {steps} steps"


if __name__ == "__main__":
    worker.run()
