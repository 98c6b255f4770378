"""A worker of tasks by plain HTTP that keeps no lease, heeds no `cancel`, and sends a last report once."""

import os
import time
from typing import Any

import httpx

NAMES = ["good", "slow"]
CLIENT = httpx.Client(base_url=os.environ["WEBLOOM_BROKER"], timeout=60)


def main() -> None:
    worker: dict[str, Any] = {"classNames": NAMES, "worker": {"name": "faulty", "slots": 1}}
    id_ = CLIENT.post("/api/v1/workers", json=worker).raise_for_status().json()["workerId"]
    while True:
        answer = CLIENT.get(f"/api/v1/workers/{id_}/messages", params={"wait": 5}).raise_for_status()
        orders = [
            order for message in (answer.json() if answer.content else []) if message["t"] == "tasks" for order in message["v"]
        ]
        for order in orders:
            report = {key: order[key] for key in ("identity", "instance", "attempt") if key in order}
            CLIENT.post(f"/api/v1/workers/{id_}/reports", json=[{**report, "state": "running"}])
            if order["handler"] == "slow":
                time.sleep(order["arguments"]["seconds"])
            CLIENT.post(f"/api/v1/workers/{id_}/reports", json=[{**report, "state": "success"}])


main()
