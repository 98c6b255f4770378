"""The client for the REST API, and the models that it takes and gives."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import httpx
import pytest

from webloom import ApiError, AsyncClient, BrokerUnavailable, Client, ConfigurationError, models
from webloom._model import format_instant, parse_instant
from webloom._settings import Settings
from webloom.testing import Broker, find_binary

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.mark.parametrize("tool", ["generate.py", "reference.py"])
def test_the_made_files_agree_with_the_program(tool: str) -> None:
    command = [sys.executable, str(TOOLS / tool), "--check", "--binary", find_binary()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_model_is_json_and_back(webloom_client: Client) -> None:
    made = webloom_client.create_job(
        models.JobInput(
            name="nightly",
            job_type="task",
            schedule=models.ScheduleInput(triggers=[models.Trigger(cron="0 2 * * *")], zone="Europe/Berlin"),
            task=models.TaskSettings(handler="report"),
            policies=models.PoliciesInput(retry=models.RetryInput(limit=2)),
        )
    )
    assert made.is_enabled
    assert made.schedule is not None
    assert made.schedule.triggers[0].cron == "0 2 * * *"
    assert isinstance(made.creation_time, datetime)
    assert isinstance(made.next_fire, datetime)
    # A job may be sent back as it was read.
    made.description = "the report of the night"
    again = webloom_client.update_job(made.id, made)
    assert again.description == "the report of the night"
    assert again.version > made.version
    with pytest.raises(ApiError) as refused:
        webloom_client.update_job(made.id, made)
    assert (refused.value.status, refused.value.type) == (409, "version")
    checked = webloom_client.create_job({"name": "checked", "jobType": "task", "task": {"handler": "x"}}, dry_run=True)
    assert checked.name == "checked"
    assert webloom_client.list_jobs(name="checked").items == []


def test_members_that_are_not_known_are_kept() -> None:
    job = models.JobInput.from_json({"name": "a", "colour": "red"})
    assert job.extra == {"colour": "red"}
    assert job.to_json() == {"colour": "red", "name": "a"}
    with pytest.raises(ValueError, match="identity"):
        models.TaskRef.from_json({"attempt": 1})
    with pytest.raises(ValueError, match="a JSON object is expected"):
        models.TaskRef.from_json([])  # type: ignore[arg-type]


def test_instants_are_in_utc_with_milliseconds() -> None:
    assert format_instant(datetime(2026, 1, 2, 3, 4, 5, 678_901, timezone(timedelta(hours=2)))) == "2026-01-02T01:04:05.678Z"
    assert parse_instant("2026-01-02T01:04:05.678Z") == datetime(2026, 1, 2, 1, 4, 5, 678_000, timezone.utc)


def test_lists_are_read_to_their_end(webloom_client: Client) -> None:
    for number in range(7):
        webloom_client.create_job({"name": f"job-{number}", "jobType": "task", "task": {"handler": "x"}})
    names = [job.name for job in webloom_client.all(webloom_client.list_jobs, sort="name", limit=3)]
    assert names == [f"job-{number}" for number in range(7)]


def test_a_refusal_says_what_and_where(webloom_client: Client) -> None:
    with pytest.raises(ApiError) as refused:
        webloom_client.create_job({"name": "", "jobType": "task", "task": {"handler": "x"}})
    assert (refused.value.status, refused.value.type, refused.value.field) == (422, "invalid", "name")
    with pytest.raises(ApiError, match="404 not-found"):
        webloom_client.read_job("0" * 32)
    with pytest.raises(ValueError, match="an id is expected"):
        webloom_client.delete_job("")


def test_a_trigger_that_is_repeated_makes_one_run(webloom_client: Client) -> None:
    job = webloom_client.create_job({"name": "x", "jobType": "task", "task": {"handler": "x", "noWorker": "wait"}}).id
    assert webloom_client.trigger_job(job).identity != webloom_client.trigger_job(job).identity
    webloom_client.idempotency_key = "the third of today"
    assert webloom_client.trigger_job(job).identity == webloom_client.trigger_job(job).identity


def test_a_key_of_a_trigger_may_be_any_text() -> None:
    """The name of a shared Scrapy crawl is such a key."""
    keys: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(dict(request.headers.raw)[b"Idempotency-Key"].decode())
        return httpx.Response(404)

    with Client("http://127.0.0.1:9") as client:
        client._http = httpx.Client(transport=httpx.MockTransport(answer))
        client.idempotency_key = "Frühling"
        with pytest.raises(ApiError):
            client.trigger_job("1")
    assert keys == ["Frühling"]


def test_the_other_calls_work(webloom_client: Client) -> None:
    client = webloom_client
    assert client.read_health() == "ok\n"
    assert "webloom" in client.read_metrics()
    assert client.list_brokers()[0].role == "leader"
    assert client.preview_schedule({"cron": "0 0 * * *", "count": 2}).fires[1].at is not None
    group = client.create_group({"name": "shop"})
    client.delete_group(group.id)
    client.put_job_data(client.create_job({"name": "d", "jobType": "task", "task": {"handler": "x"}}).id, {"data": [1]})
    pushed = client.push_package(_zip(), name="hello.zip")
    assert client.fetch_package(pushed.sha256) == _zip()
    exported = client.export_jobs()
    assert exported[0].name == "d"
    assert client.import_jobs([{"name": "e", "jobType": "task", "task": {"handler": "x"}}])[0].action == "created"


def _zip() -> bytes:
    import io
    import zipfile

    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(zipfile.ZipInfo("hello.txt"), "hello")
    return out.getvalue()


def test_the_client_for_asyncio_does_the_same(webloom_broker: Broker) -> None:
    async def journey() -> None:
        async with AsyncClient(webloom_broker.url) as client:
            for number in range(3):
                await client.create_job({"name": f"job-{number}", "jobType": "task", "task": {"handler": "x"}})
            assert [job.name async for job in client.all(client.list_jobs, sort="name", limit=2)] == ["job-0", "job-1", "job-2"]
            job = (await client.list_jobs(name="job-1")).items[0]
            run = await client.trigger_job(job.id)
            assert (await client.wait_for_run(run.identity, timeout=30)).state == "failed"
            with pytest.raises(ApiError):
                await client.read_run("0" * 32)

    asyncio.run(journey())


def test_a_broker_that_is_away_is_waited_for_and_then_said(webloom_broker: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        nowhere = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with Client(nowhere, retries=1) as client, pytest.raises(BrokerUnavailable):
        client.list_jobs()
    with Client([nowhere, webloom_broker.url]) as client:
        assert client.list_jobs().items == []
    webloom_broker.kill()
    webloom_broker.start()
    assert webloom_broker.client.list_jobs().items == []


def test_an_answer_that_a_standby_lost_is_asked_for_again_if_that_does_no_harm() -> None:
    calls: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        calls.append(request.method)
        if len(calls) == 2:
            return httpx.Response(200, json={"items": []})
        return httpx.Response(502, json={"type": "/problems/answer-lost"})

    with Client("http://127.0.0.1:9") as client:
        client._http = httpx.Client(transport=httpx.MockTransport(answer))
        assert client.list_runs().items == []
        with pytest.raises(ApiError, match="answer-lost"):
            client.create_job({"name": "once"})
    assert calls == ["GET", "GET", "POST"]


def test_settings_come_from_arguments_or_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WEBLOOM_BROKER", "WEBLOOM_TOKEN", "WEBLOOM_CA_FILE"):
        monkeypatch.delenv(name, raising=False)
    assert Settings.read() == Settings(("http://127.0.0.1:55626",), None, None)
    monkeypatch.setenv("WEBLOOM_BROKER", "https://a:1/, http://b:2")
    monkeypatch.setenv("WEBLOOM_TOKEN", "secret")
    settings = Settings.read()
    assert settings.brokers == ("https://a:1", "http://b:2")
    assert settings.headers() == {"Authorization": "Bearer secret"}
    assert Settings.read("http://c").brokers == ("http://c",)
    assert Settings.read("HTTPS://C").brokers == ("https://C",)
    for wrong in ("c:55626", "ftp://c", "http://", " , "):
        with pytest.raises(ConfigurationError):
            Settings.read(wrong)
    with pytest.raises(ConfigurationError, match="does not exist"):
        Settings.read(ca_file=tmp_path / "none")
    (tmp_path / "wrong.pem").write_text("no certificate")
    with pytest.raises(ConfigurationError, match="no certificates"):
        Settings.read("https://a", ca_file=tmp_path / "wrong.pem").tls()
