# Made by tools/generate.py from the OpenAPI document of the broker. Do not edit.
"""The calls of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from . import models
from ._call import AsyncCalls, SyncCalls


class Calls(SyncCalls):
    """A method for each call."""

    def acknowledge_blocks(self, identity: str, body: models.AckCall | Mapping[str, Any]) -> models.Pushed:
        """`POST /requestqueue/{identity}/ack`: Acknowledges blocks and pushes their follow-up requests, in one transaction."""
        answer: models.Pushed = self._json("POST", f"/requestqueue/{self._part(identity)}/ack", body=body, returns="models.Pushed")
        return answer

    def allow_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/allow`: Admits a kicked worker again. It does not change other workers."""
        answer: models.WorkerOutput = self._json("POST", f"/api/v1/workers/{self._part(id)}/allow", body=body, returns="models.WorkerOutput")
        return answer

    def append_logs(self, id: str, body: Sequence[models.LogInput | Mapping[str, Any]]) -> models.LogAccepted:
        """`POST /api/v1/runs/{id}/logs`: A worker appends lines to the log of a run."""
        answer: models.LogAccepted = self._json("POST", f"/api/v1/runs/{self._part(id)}/logs", body=body, returns="models.LogAccepted")
        return answer

    def ask_next(self, id: str, body: models.AskInput | Mapping[str, Any]) -> models.NextFire:
        """`POST /api/v1/runs/{id}/next`: A run sets the next fire of its job. This replaces the schedule once."""
        answer: models.NextFire = self._json("POST", f"/api/v1/runs/{self._part(id)}/next", body=body, returns="models.NextFire")
        return answer

    def backfill_job(self, id: str, body: models.BackfillInput | Mapping[str, Any]) -> models.BackfillOutput:
        """`POST /api/v1/jobs/{id}/backfill`: Creates the missing runs for the scheduled times of a past range."""
        answer: models.BackfillOutput = self._json("POST", f"/api/v1/jobs/{self._part(id)}/backfill", body=body, returns="models.BackfillOutput")
        return answer

    def beat(self, body: models.HeartbeatCall | Mapping[str, Any]) -> models.BlockForNode | None:
        """`POST /node/heartbeat`: Heartbeat of a node without a socket: it sends its facts and gets a block or nothing."""
        answer: models.BlockForNode | None = self._json("POST", "/node/heartbeat", body=body, returns="models.BlockForNode | None")
        return answer

    def call_hook(self, hook: str, content: bytes) -> models.HookAnswer:
        """`POST /hooks/{hook}`: Triggers the job of a hook; the body becomes the arguments of the run. It needs no token, but the
        secret of the hook in `Webloom-Secret`, or a signature of the body in `X-Hub-Signature-256`. Calls
        with one `Idempotency-Key` (or `X-GitHub-Delivery`) make one run.
        """
        answer: models.HookAnswer = self._json("POST", f"/hooks/{self._part(hook)}", content=content, returns="models.HookAnswer")
        return answer

    def clear_job_data(self, id: str) -> None:
        """`DELETE /api/v1/jobs/{id}/data`: Deletes the data for the next run."""
        self._none("DELETE", f"/api/v1/jobs/{self._part(id)}/data")

    def count_failed_requests(self, id: str) -> models.FailureCounts:
        """`GET /api/v1/runs/{id}/requests/counts`: Counts the failed requests of a block run by kind, and by status where the site sent a complete
        response.
        """
        answer: models.FailureCounts = self._json("GET", f"/api/v1/runs/{self._part(id)}/requests/counts", returns="models.FailureCounts")
        return answer

    def create_alert(self, body: models.AlertInput | models.AlertOutput | Mapping[str, Any]) -> models.AlertOutput:
        """`POST /api/v1/alerts`: Adds a channel: a webhook or a mail address."""
        answer: models.AlertOutput = self._json("POST", "/api/v1/alerts", body=body, returns="models.AlertOutput")
        return answer

    def create_group(self, body: models.GroupInput | models.GroupOutput | Mapping[str, Any]) -> models.GroupOutput:
        """`POST /api/v1/groups`: Creates a group."""
        answer: models.GroupOutput = self._json("POST", "/api/v1/groups", body=body, returns="models.GroupOutput")
        return answer

    def create_hook(self, id: str, body: models.HookInput | Mapping[str, Any]) -> models.NewHook:
        """`POST /api/v1/jobs/{id}/hooks`: Creates a hook of a job. Its secret is in this response only."""
        answer: models.NewHook = self._json("POST", f"/api/v1/jobs/{self._part(id)}/hooks", body=body, returns="models.NewHook")
        return answer

    def create_job(self, body: models.JobInput | models.JobOutput | Mapping[str, Any], *, dry_run: bool | None = None) -> models.JobOutput:
        """`POST /api/v1/jobs`: Creates a job, or only checks it."""
        answer: models.JobOutput = self._json("POST", "/api/v1/jobs", body=body, query={"dryRun": dry_run}, returns="models.JobOutput")
        return answer

    def create_token(self, body: models.TokenInput | Mapping[str, Any]) -> models.NewToken:
        """`POST /api/v1/tokens`: Creates a named token. Its text is in this response only: the broker stores its SHA-256."""
        answer: models.NewToken = self._json("POST", "/api/v1/tokens", body=body, returns="models.NewToken")
        return answer

    def delete_alert(self, id: str) -> None:
        """`DELETE /api/v1/alerts/{id}`: Removes a channel."""
        self._none("DELETE", f"/api/v1/alerts/{self._part(id)}")

    def delete_group(self, id: str) -> None:
        """`DELETE /api/v1/groups/{id}`: Deletes a group that has no jobs."""
        self._none("DELETE", f"/api/v1/groups/{self._part(id)}")

    def delete_hook(self, id: str, hook: str) -> None:
        """`DELETE /api/v1/jobs/{id}/hooks/{hook}`: Deletes a hook of a job: its address is rejected from now on."""
        self._none("DELETE", f"/api/v1/jobs/{self._part(id)}/hooks/{self._part(hook)}")

    def delete_job(self, id: str) -> None:
        """`DELETE /api/v1/jobs/{id}`: Deletes a job: it is marked as deleted, and no longer triggered or scheduled. Its history stays."""
        self._none("DELETE", f"/api/v1/jobs/{self._part(id)}")

    def disable_group(self, id: str, body: models.DisableInput | Mapping[str, Any] | None = None) -> models.GroupSwitched:
        """`POST /api/v1/groups/{id}/disable`: Disables all jobs of a group."""
        answer: models.GroupSwitched = self._json("POST", f"/api/v1/groups/{self._part(id)}/disable", body=body, returns="models.GroupSwitched")
        return answer

    def disable_job(self, id: str, body: models.DisableInput | Mapping[str, Any] | None = None) -> models.JobOutput:
        """`POST /api/v1/jobs/{id}/disable`: Disables a job: its schedule and triggers start no runs."""
        answer: models.JobOutput = self._json("POST", f"/api/v1/jobs/{self._part(id)}/disable", body=body, returns="models.JobOutput")
        return answer

    def disable_node(self, id: str, body: models.Reason | Mapping[str, Any] | None = None) -> models.NodeOutput:
        """`POST /api/v1/nodes/{id}/disable`: Stops sending work to a node. It finishes its current work."""
        answer: models.NodeOutput = self._json("POST", f"/api/v1/nodes/{self._part(id)}/disable", body=body, returns="models.NodeOutput")
        return answer

    def disable_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/disable`: Stops sending work to a worker. It may finish and report its current work."""
        answer: models.WorkerOutput = self._json("POST", f"/api/v1/workers/{self._part(id)}/disable", body=body, returns="models.WorkerOutput")
        return answer

    def discard_requests(self, id: str, body: models.DiscardInput | Mapping[str, Any]) -> models.Discarded:
        """`POST /api/v1/runs/{id}/requests/discard`: Discards pending requests of a block run that is under way: each gets a failure of the kind
        `discarded`, which its worker receives. Those at nodes are left alone.
        """
        answer: models.Discarded = self._json("POST", f"/api/v1/runs/{self._part(id)}/requests/discard", body=body, returns="models.Discarded")
        return answer

    def drain_broker(self, id: str) -> models.BrokerOutput:
        """`POST /api/v1/brokers/{id}/drain`: The leader takes over the runs of a standby that wait, and attempts that have begun are finished
        there, so that it can be stopped without repeating an attempt. It gets no more runs. The broker gets
        runs again when it is started again.
        """
        answer: models.BrokerOutput = self._json("POST", f"/api/v1/brokers/{self._part(id)}/drain", returns="models.BrokerOutput")
        return answer

    def drain_node(self, id: str, body: models.Reason | Mapping[str, Any] | None = None) -> models.NodeOutput:
        """`POST /api/v1/nodes/{id}/drain`: Stops sending work to a node. It finishes its current work and exits. It gets no work until it is
        enabled.
        """
        answer: models.NodeOutput = self._json("POST", f"/api/v1/nodes/{self._part(id)}/drain", body=body, returns="models.NodeOutput")
        return answer

    def drain_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/drain`: Stops sending work to a worker, and orders it to leave when its current work is finished."""
        answer: models.WorkerOutput = self._json("POST", f"/api/v1/workers/{self._part(id)}/drain", body=body, returns="models.WorkerOutput")
        return answer

    def enable_group(self, id: str) -> models.GroupSwitched:
        """`POST /api/v1/groups/{id}/enable`: Enables all jobs of a group."""
        answer: models.GroupSwitched = self._json("POST", f"/api/v1/groups/{self._part(id)}/enable", returns="models.GroupSwitched")
        return answer

    def enable_job(self, id: str) -> models.JobOutput:
        """`POST /api/v1/jobs/{id}/enable`: Enables a job: its schedule and triggers start runs."""
        answer: models.JobOutput = self._json("POST", f"/api/v1/jobs/{self._part(id)}/enable", returns="models.JobOutput")
        return answer

    def enable_node(self, id: str) -> models.NodeOutput:
        """`POST /api/v1/nodes/{id}/enable`: Enables a node: it gets work again, whatever order it had before."""
        answer: models.NodeOutput = self._json("POST", f"/api/v1/nodes/{self._part(id)}/enable", returns="models.NodeOutput")
        return answer

    def enable_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/enable`: Enables a worker: it gets work again."""
        answer: models.WorkerOutput = self._json("POST", f"/api/v1/workers/{self._part(id)}/enable", body=body, returns="models.WorkerOutput")
        return answer

    def exit_node(self, id: str, body: models.Reason | Mapping[str, Any] | None = None) -> models.NodeOutput:
        """`POST /api/v1/nodes/{id}/exit`: Shuts down a node's agent and its programs. The order is repeated at every connection until the node
        is enabled.
        """
        answer: models.NodeOutput = self._json("POST", f"/api/v1/nodes/{self._part(id)}/exit", body=body, returns="models.NodeOutput")
        return answer

    def explain_fire(self, id: str, *, at: datetime | None = None) -> models.WhyOutput:
        """`GET /api/v1/jobs/{id}/why`: Explains why a time made a run of a job, or none."""
        answer: models.WhyOutput = self._json("GET", f"/api/v1/jobs/{self._part(id)}/why", query={"at": at}, returns="models.WhyOutput")
        return answer

    def explain_run(self, id: str) -> models.WhyOutput:
        """`GET /api/v1/runs/{id}/why`: Explains the state of a run: what it waits for, which worker or node has it, or how it ended."""
        answer: models.WhyOutput = self._json("GET", f"/api/v1/runs/{self._part(id)}/why", returns="models.WhyOutput")
        return answer

    def explain_url(self, id: str, *, url: str) -> models.WhyOutput:
        """`GET /api/v1/runs/{id}/why-url`: Explains why a block run has no result for a URL: where its request is, and what it waits for."""
        answer: models.WhyOutput = self._json("GET", f"/api/v1/runs/{self._part(id)}/why-url", query={"url": url}, returns="models.WhyOutput")
        return answer

    def export_jobs(self, *, group: str | None = None, name: str | None = None) -> list[models.ExportedJob]:
        """`GET /api/v1/jobs/export`: Exports jobs as a file, sorted by name. YAML, unless `Accept` asks for JSON. The secret of a callback
        is empty; other secrets are masked for all but an admin.
        """
        answer: list[models.ExportedJob] = self._json("GET", "/api/v1/jobs/export", query={"group": group, "name": name}, returns="list[models.ExportedJob]")
        return answer

    def fetch_messages(self, id: str, *, wait: float | None = None) -> list[models.ToWorker] | None:
        """`GET /api/v1/workers/{id}/messages`: Returns the broker's messages to a worker without a socket. The call is also its heartbeat."""
        answer: list[models.ToWorker] | None = self._json("GET", f"/api/v1/workers/{self._part(id)}/messages", query={"wait": wait}, returns="list[models.ToWorker] | None")
        return answer

    def fetch_package(self, sha256: str) -> bytes:
        """`GET /api/v1/packages/{sha256}`: The bytes of a package."""
        return self._bytes("GET", f"/api/v1/packages/{self._part(sha256)}")

    def follow_logs(self, id: str, *, after: int | None = None, level: str | None = None, text: str | None = None, wait: float | None = None) -> str:
        """`GET /api/v1/runs/{id}/logs/stream`: Follows the log of a run, as server-sent events: `line`, `state`, `end`. `Last-Event-ID` continues
        after that line.
        """
        return self._text("GET", f"/api/v1/runs/{self._part(id)}/logs/stream", query={"after": after, "level": level, "text": text, "wait": wait})

    def forget_worker(self, id: str, *, force: bool | None = None) -> None:
        """`DELETE /api/v1/workers/{id}`: Deletes a worker. A connected worker is not deleted unless `force` is set: then it is evicted, and its
        work goes to other workers.
        """
        self._none("DELETE", f"/api/v1/workers/{self._part(id)}", query={"force": force})

    def hold_site(self, name: str, body: models.HoldInput | Mapping[str, Any]) -> models.SiteOutput:
        """`POST /api/v1/sites/{name}/hold`: Puts a site on hold: no run starts a request there until the hold ends, and nodes are ordered to drop
        their blocks of it.
        """
        answer: models.SiteOutput = self._json("POST", f"/api/v1/sites/{self._part(name)}/hold", body=body, returns="models.SiteOutput")
        return answer

    def import_jobs(self, body: models.ImportBody | Mapping[str, Any] | Sequence[Any], *, dry_run: bool | None = None) -> list[models.ImportedJob]:
        """`POST /api/v1/jobs/import`: Creates or changes jobs from a JSON or YAML file, by name. All are checked before any is written."""
        answer: list[models.ImportedJob] = self._json("POST", "/api/v1/jobs/import", body=body, query={"dryRun": dry_run}, returns="list[models.ImportedJob]")
        return answer

    def kick_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/kick`: Kicks a worker: its work goes to other workers, and it is rejected until it is allowed again."""
        answer: models.WorkerOutput = self._json("POST", f"/api/v1/workers/{self._part(id)}/kick", body=body, returns="models.WorkerOutput")
        return answer

    def list_actor_kinds(self) -> models.Kinds:
        """`GET /api/v1/actors/kinds`: The kinds of actors that the brokers have now, with the sums of each."""
        answer: models.Kinds = self._json("GET", "/api/v1/actors/kinds", returns="models.Kinds")
        return answer

    def list_actors(self, *, after: str | None = None, errors: bool | None = None, kind: str | None = None, limit: int | None = None, text: str | None = None) -> list[models.ActorOutput]:
        """`GET /api/v1/actors`: Lists the actors of all brokers, by kind and name: all of them, or those that a filter selects."""
        answer: list[models.ActorOutput] = self._json("GET", "/api/v1/actors", query={"after": after, "errors": errors, "kind": kind, "limit": limit, "text": text}, returns="list[models.ActorOutput]")
        return answer

    def list_alert_events(self, *, cursor: str | None = None, limit: int | None = None) -> models.AlertEventOutputPage:
        """`GET /api/v1/alerts/events`: Lists alert events, newest first, and the channels that they were sent to."""
        answer: models.AlertEventOutputPage = self._json("GET", "/api/v1/alerts/events", query={"cursor": cursor, "limit": limit}, returns="models.AlertEventOutputPage")
        return answer

    def list_alerts(self) -> models.Channels:
        """`GET /api/v1/alerts`: Lists the channels that alerts go to."""
        answer: models.Channels = self._json("GET", "/api/v1/alerts", returns="models.Channels")
        return answer

    def list_attempts(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.AttemptOutputPage:
        """`GET /api/v1/runs/{id}/attempts`: Lists the attempts of a run that had more than one, by instance and attempt: of each instance the last
        100. The current or last attempt of a program, and of a task on several workers, is in the list of
        instances only. A run with one attempt has none here: its times are its attempt's.
        """
        answer: models.AttemptOutputPage = self._json("GET", f"/api/v1/runs/{self._part(id)}/attempts", query={"cursor": cursor, "limit": limit}, returns="models.AttemptOutputPage")
        return answer

    def list_audit(self, *, caller: str | None = None, cursor: str | None = None, from_: datetime | None = None, kind: str | None = None, limit: int | None = None, object: str | None = None, operation: str | None = None, to: datetime | None = None) -> models.AuditOutputPage:
        """`GET /api/v1/audit`: Lists the calls that change something, newest first: who made them, from where, on which object, and
        their results. Calls that nodes and workers make for their work are not listed.
        """
        answer: models.AuditOutputPage = self._json("GET", "/api/v1/audit", query={"caller": caller, "cursor": cursor, "from": from_, "kind": kind, "limit": limit, "object": object, "operation": operation, "to": to}, returns="models.AuditOutputPage")
        return answer

    def list_blocks(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.BlockOutputPage:
        """`GET /api/v1/runs/{id}/blocks`: Lists the blocks of a run, in the order of their numbers."""
        answer: models.BlockOutputPage = self._json("GET", f"/api/v1/runs/{self._part(id)}/blocks", query={"cursor": cursor, "limit": limit}, returns="models.BlockOutputPage")
        return answer

    def list_brokers(self) -> list[models.BrokerOutput]:
        """`GET /api/v1/brokers`: Lists the brokers of the database: the leader and the standbys."""
        answer: list[models.BrokerOutput] = self._json("GET", "/api/v1/brokers", returns="list[models.BrokerOutput]")
        return answer

    def list_changes(self, *, cursor: str | None = None, limit: int | None = None) -> models.JobChangePage:
        """`GET /api/v1/changes`: The changes of all jobs, newest first."""
        answer: models.JobChangePage = self._json("GET", "/api/v1/changes", query={"cursor": cursor, "limit": limit}, returns="models.JobChangePage")
        return answer

    def list_changes_of_job(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.JobChangePage:
        """`GET /api/v1/jobs/{id}/history`: The changes of a job, newest first: who, when, and the new values."""
        answer: models.JobChangePage = self._json("GET", f"/api/v1/jobs/{self._part(id)}/history", query={"cursor": cursor, "limit": limit}, returns="models.JobChangePage")
        return answer

    def list_fires(self, id: str, *, cursor: str | None = None, from_: datetime | None = None, limit: int | None = None, to: datetime | None = None, verdict: str | None = None) -> models.FireOutputPage:
        """`GET /api/v1/jobs/{id}/fires`: The ledger of a job: the outcome of each scheduled time, newest first."""
        answer: models.FireOutputPage = self._json("GET", f"/api/v1/jobs/{self._part(id)}/fires", query={"cursor": cursor, "from": from_, "limit": limit, "to": to, "verdict": verdict}, returns="models.FireOutputPage")
        return answer

    def list_groups(self, *, cursor: str | None = None, limit: int | None = None) -> models.GroupOutputPage:
        """`GET /api/v1/groups`: Lists groups by their names."""
        answer: models.GroupOutputPage = self._json("GET", "/api/v1/groups", query={"cursor": cursor, "limit": limit}, returns="models.GroupOutputPage")
        return answer

    def list_hooks(self, id: str) -> models.HooksOutput:
        """`GET /api/v1/jobs/{id}/hooks`: Lists the hooks of a job: addresses at which other systems trigger it."""
        answer: models.HooksOutput = self._json("GET", f"/api/v1/jobs/{self._part(id)}/hooks", returns="models.HooksOutput")
        return answer

    def list_instances(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.InstanceOutputPage:
        """`GET /api/v1/runs/{id}/instances`: Lists the instances of a run, each with its current or last worker or node. A task that went to one
        worker has one; block runs and callbacks have none.
        """
        answer: models.InstanceOutputPage = self._json("GET", f"/api/v1/runs/{self._part(id)}/instances", query={"cursor": cursor, "limit": limit}, returns="models.InstanceOutputPage")
        return answer

    def list_jobs(self, *, cursor: str | None = None, deleted: bool | None = None, enabled: bool | None = None, group: str | None = None, id: str | None = None, kind: models.JobKind | None = None, limit: int | None = None, name: str | None = None, sort: str | None = None) -> models.JobOutputPage:
        """`GET /api/v1/jobs`: Lists jobs, by default oldest first."""
        answer: models.JobOutputPage = self._json("GET", "/api/v1/jobs", query={"cursor": cursor, "deleted": deleted, "enabled": enabled, "group": group, "id": id, "kind": kind, "limit": limit, "name": name, "sort": sort}, returns="models.JobOutputPage")
        return answer

    def list_next_fires(self, id: str, *, after: datetime | None = None, count: int | None = None) -> models.PreviewOutput:
        """`GET /api/v1/jobs/{id}/next`: Lists the next fires of a job, as its schedule stands now."""
        answer: models.PreviewOutput = self._json("GET", f"/api/v1/jobs/{self._part(id)}/next", query={"after": after, "count": count}, returns="models.PreviewOutput")
        return answer

    def list_node_connections(self, id: str, *, limit: int | None = None) -> models.NodeConnectionOutputPage:
        """`GET /api/v1/nodes/{id}/connections`: Lists the connections of a node, newest first: at most its last 100."""
        answer: models.NodeConnectionOutputPage = self._json("GET", f"/api/v1/nodes/{self._part(id)}/connections", query={"limit": limit}, returns="models.NodeConnectionOutputPage")
        return answer

    def list_node_statuses(self, id: str, *, from_: datetime | None = None, limit: int | None = None, step: int | None = None, to: datetime | None = None) -> models.NodeStatusOutputPage:
        """`GET /api/v1/nodes/{id}/statuses`: Lists the status of a node from its heartbeats, newest first."""
        answer: models.NodeStatusOutputPage = self._json("GET", f"/api/v1/nodes/{self._part(id)}/statuses", query={"from": from_, "limit": limit, "step": step, "to": to}, returns="models.NodeStatusOutputPage")
        return answer

    def list_nodes(self) -> models.NodeOutputPage:
        """`GET /api/v1/nodes`: Lists all nodes ever seen."""
        answer: models.NodeOutputPage = self._json("GET", "/api/v1/nodes", returns="models.NodeOutputPage")
        return answer

    def list_packages(self) -> models.PackageOutputPage:
        """`GET /api/v1/packages`: Lists the packages that the broker stores, newest first."""
        answer: models.PackageOutputPage = self._json("GET", "/api/v1/packages", returns="models.PackageOutputPage")
        return answer

    def list_pending_requests(self, id: str, *, cursor: str | None = None, limit: int | None = None, max_depth: int | None = None, min_depth: int | None = None, site: str | None = None, url: str | None = None) -> models.PendingRequestPage:
        """`GET /api/v1/runs/{id}/requests/pending`: Lists the requests of a block run that have no results yet, in the order of their blocks; those at
        nodes are among them. A page may be short though more follow.
        """
        answer: models.PendingRequestPage = self._json("GET", f"/api/v1/runs/{self._part(id)}/requests/pending", query={"cursor": cursor, "limit": limit, "maxDepth": max_depth, "minDepth": min_depth, "site": site, "url": url}, returns="models.PendingRequestPage")
        return answer

    def list_requests(self, id: str, *, cursor: str | None = None, kind: models.FetchErrorKind | None = None, limit: int | None = None, site: str | None = None, state: models.RequestState | None = None, status: int | None = None) -> models.FailedRequestPage:
        """`GET /api/v1/runs/{id}/requests`: Lists the requests of a block run that failed, in the order of their blocks. A page may be short even
        if more pages follow.
        """
        answer: models.FailedRequestPage = self._json("GET", f"/api/v1/runs/{self._part(id)}/requests", query={"cursor": cursor, "kind": kind, "limit": limit, "site": site, "state": state, "status": status}, returns="models.FailedRequestPage")
        return answer

    def list_results(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.FinishedBlockPage:
        """`GET /api/v1/runs/{id}/results`: Reads the results of a block run that no worker has acknowledged, in the order of their blocks, and
        leaves them as they are. Acknowledged results, and those of a run that is over, are deleted. A page
        ends early where it becomes large. If `Accept` asks for `application/jsonl`, all results are sent from
        the cursor on, a line of JSON for each; of other runs, then, what the run or its instances left.
        """
        answer: models.FinishedBlockPage = self._json("GET", f"/api/v1/runs/{self._part(id)}/results", query={"cursor": cursor, "limit": limit}, returns="models.FinishedBlockPage")
        return answer

    def list_run_sites(self, id: str, *, cursor: str | None = None, errors: bool | None = None, limit: int | None = None) -> models.RunSiteOutputPage:
        """`GET /api/v1/runs/{id}/sites`: Lists the sites of a block run, in the order of their first requests; of a run that has ended, by
        name. A host without a pace is listed only if its robots.txt is obeyed, its requests are limited
        (`MaxPerSite`), or it is or was on hold. A run of another kind has no sites.
        """
        answer: models.RunSiteOutputPage = self._json("GET", f"/api/v1/runs/{self._part(id)}/sites", query={"cursor": cursor, "errors": errors, "limit": limit}, returns="models.RunSiteOutputPage")
        return answer

    def list_runs(self, *, cursor: str | None = None, from_: datetime | None = None, group: str | None = None, id: str | None = None, job_id: str | None = None, kind: models.JobKind | None = None, limit: int | None = None, sort: str | None = None, state: models.RunState | None = None, to: datetime | None = None, trace_id: str | None = None) -> models.RunOutputPage:
        """`GET /api/v1/runs`: Lists runs, by default newest first."""
        answer: models.RunOutputPage = self._json("GET", "/api/v1/runs", query={"cursor": cursor, "from": from_, "group": group, "id": id, "jobId": job_id, "kind": kind, "limit": limit, "sort": sort, "state": state, "to": to, "traceId": trace_id}, returns="models.RunOutputPage")
        return answer

    def list_settings(self) -> models.Settings:
        """`GET /api/v1/settings`: Lists the settings that are in force at this broker, without secrets and paths."""
        answer: models.Settings = self._json("GET", "/api/v1/settings", returns="models.Settings")
        return answer

    def list_sites(self, *, cursor: str | None = None, held: bool | None = None, limit: int | None = None, name: str | None = None) -> models.SiteOutputPage:
        """`GET /api/v1/sites`: Lists sites by name: those that runs requested lately, that are on hold, or that fail."""
        answer: models.SiteOutputPage = self._json("GET", "/api/v1/sites", query={"cursor": cursor, "held": held, "limit": limit, "name": name}, returns="models.SiteOutputPage")
        return answer

    def list_tokens(self) -> models.TokensOutput:
        """`GET /api/v1/tokens`: Lists the named tokens, without their texts. Tokens of the command line and of the token file are not
        listed.
        """
        answer: models.TokensOutput = self._json("GET", "/api/v1/tokens", returns="models.TokensOutput")
        return answer

    def list_warnings(self) -> models.Warnings:
        """`GET /api/v1/warnings`: Lists what an operator should look at, at most twenty of each kind."""
        answer: models.Warnings = self._json("GET", "/api/v1/warnings", returns="models.Warnings")
        return answer

    def list_watches(self, *, limit: int | None = None, worker: str | None = None) -> models.WorkerWatchPage:
        """`GET /api/v1/workers/watches`: Lists which worker watched which class from when to when, newest first."""
        answer: models.WorkerWatchPage = self._json("GET", "/api/v1/workers/watches", query={"limit": limit, "worker": worker}, returns="models.WorkerWatchPage")
        return answer

    def list_workers(self, *, cursor: str | None = None, group: str | None = None, limit: int | None = None, online: bool | None = None, state: models.WorkerState | None = None) -> models.WorkerOutputPage:
        """`GET /api/v1/workers`: Lists workers by id: connected ones and former ones."""
        answer: models.WorkerOutputPage = self._json("GET", "/api/v1/workers", query={"cursor": cursor, "group": group, "limit": limit, "online": online, "state": state}, returns="models.WorkerOutputPage")
        return answer

    def pause_run(self, id: str) -> models.RunOutput:
        """`POST /api/v1/runs/{id}/pause`: Pauses a block run: it dispatches no more blocks. Blocks at nodes still finish, and results are
        delivered. Its timeout continues.
        """
        answer: models.RunOutput = self._json("POST", f"/api/v1/runs/{self._part(id)}/pause", returns="models.RunOutput")
        return answer

    def poll_blocks(self, identity: str, *, ack: str | None = None, max: int | None = None, wait: float | None = None, worker: str | None = None) -> models.Polled | None:
        """`GET /requestqueue/{identity}`: Delivers finished blocks of a run. The bulk form is described in docs/protocol.md."""
        answer: models.Polled | None = self._json("GET", f"/requestqueue/{self._part(identity)}", query={"ack": ack, "max": max, "wait": wait, "worker": worker}, returns="models.Polled | None")
        return answer

    def preview_schedule(self, body: models.PreviewInput | Mapping[str, Any]) -> models.PreviewOutput:
        """`POST /api/v1/jobs/preview`: Previews the fires of a schedule without storing it."""
        answer: models.PreviewOutput = self._json("POST", "/api/v1/jobs/preview", body=body, returns="models.PreviewOutput")
        return answer

    def purge_job(self, id: str) -> None:
        """`POST /api/v1/jobs/{id}/purge`: Removes a deleted job from the store for good. All its runs must have ended."""
        self._none("POST", f"/api/v1/jobs/{self._part(id)}/purge")

    def push_package(self, content: bytes, *, name: str | None = None) -> models.PackageOutput:
        """`POST /api/v1/packages`: Stores a package: a zip or a tar.gz, as the body. Sending the same bytes again changes nothing."""
        answer: models.PackageOutput = self._json("POST", "/api/v1/packages", content=content, query={"name": name}, returns="models.PackageOutput")
        return answer

    def push_requests(self, identity: str, body: models.PushInput | Mapping[str, Any] | Sequence[Any]) -> models.Pushed:
        """`POST /requestqueue/{identity}`: Pushes requests into the queue of a run. A request that the run has already seen is not added again."""
        answer: models.Pushed = self._json("POST", f"/requestqueue/{self._part(identity)}", body=body, returns="models.Pushed")
        return answer

    def put_job_data(self, id: str, body: models.JobDataInput | Mapping[str, Any]) -> None:
        """`PUT /api/v1/jobs/{id}/data`: Replaces the data for the next run. Runs in progress keep the data that they have."""
        self._none("PUT", f"/api/v1/jobs/{self._part(id)}/data", body=body)

    def read_actor(self, kind: str, name: str, *, broker_id: str | None = None) -> models.ActorDetail:
        """`GET /api/v1/actors/{kind}/{name}`: An actor, its messages by type, and why it was restarted. An actor is there only while it has work."""
        answer: models.ActorDetail = self._json("GET", f"/api/v1/actors/{self._part(kind)}/{self._part(name)}", query={"brokerId": broker_id}, returns="models.ActorDetail")
        return answer

    def read_alert(self, id: str) -> models.AlertOutput:
        """`GET /api/v1/alerts/{id}`: A channel."""
        answer: models.AlertOutput = self._json("GET", f"/api/v1/alerts/{self._part(id)}", returns="models.AlertOutput")
        return answer

    def read_group(self, id: str) -> models.GroupOutput:
        """`GET /api/v1/groups/{id}`: A group."""
        answer: models.GroupOutput = self._json("GET", f"/api/v1/groups/{self._part(id)}", returns="models.GroupOutput")
        return answer

    def read_health(self) -> str:
        """`GET /healthz`: Liveness: the process responds."""
        return self._text("GET", "/healthz")

    def read_job(self, id: str) -> models.JobOutput:
        """`GET /api/v1/jobs/{id}`: A job."""
        answer: models.JobOutput = self._json("GET", f"/api/v1/jobs/{self._part(id)}", returns="models.JobOutput")
        return answer

    def read_job_data(self, id: str) -> models.JobDataOutput:
        """`GET /api/v1/jobs/{id}/data`: The data that the last run of a job stored for the next one. 404 if there is none."""
        answer: models.JobDataOutput = self._json("GET", f"/api/v1/jobs/{self._part(id)}/data", returns="models.JobDataOutput")
        return answer

    def read_lateness(self, id: str) -> models.Lateness:
        """`GET /api/v1/jobs/{id}/lateness`: The lateness of the most recent scheduled runs of a job."""
        answer: models.Lateness = self._json("GET", f"/api/v1/jobs/{self._part(id)}/lateness", returns="models.Lateness")
        return answer

    def read_logs(self, id: str, *, after: int | None = None, level: str | None = None, limit: int | None = None, since: datetime | None = None, text: str | None = None, until: datetime | None = None, wait: float | None = None) -> models.LogPage:
        """`GET /api/v1/runs/{id}/logs`: The log of a run, in the order of arrival. The call can wait for new lines."""
        answer: models.LogPage = self._json("GET", f"/api/v1/runs/{self._part(id)}/logs", query={"after": after, "level": level, "limit": limit, "since": since, "text": text, "until": until, "wait": wait}, returns="models.LogPage")
        return answer

    def read_metrics(self) -> str:
        """`GET /metrics`: Metrics in the text format of Prometheus."""
        return self._text("GET", "/metrics")

    def read_node(self, id: str) -> models.NodeOutput:
        """`GET /api/v1/nodes/{id}`: A node."""
        answer: models.NodeOutput = self._json("GET", f"/api/v1/nodes/{self._part(id)}", returns="models.NodeOutput")
        return answer

    def read_readiness(self) -> str:
        """`GET /readyz`: Readiness: this broker leads, and the store commits."""
        return self._text("GET", "/readyz")

    def read_run(self, id: str) -> models.RunOutput:
        """`GET /api/v1/runs/{id}`: A run."""
        answer: models.RunOutput = self._json("GET", f"/api/v1/runs/{self._part(id)}", returns="models.RunOutput")
        return answer

    def read_run_status(self, id: str) -> list[models.JobStatusOutput]:
        """`GET /api/v1/runs/{id}/status`: The statistics of each node for a run. The first row is the total and has no node."""
        answer: list[models.JobStatusOutput] = self._json("GET", f"/api/v1/runs/{self._part(id)}/status", returns="list[models.JobStatusOutput]")
        return answer

    def read_series(self, *, from_: datetime | None = None, to: datetime | None = None) -> models.SeriesOutput:
        """`GET /api/v1/series`: What the brokers did in a period of the last year, in steps of equal length: minutes if the period
        began within the last day, quarters of an hour within the last thirty days, else quarters of a day.
        Sums: `runs.*` and `fires.*` by outcome, `requests.*`, `bytes`, `errors.*` by kind. Durations in
        milliseconds, as percentiles rounded up to the bound of a bucket: `lateness.*` from the scheduled time
        to the run, `delay.*` from there to the order to a worker, `answer.*` of sites. Means with `.min` and
        `.max` of what was observed every ten seconds: `requests.waiting`, `nodes.online`, `workers.online`,
        `store.waiting`; and of what was counted once a minute: `runs.running`, `runs.waiting`.
        """
        answer: models.SeriesOutput = self._json("GET", "/api/v1/series", query={"from": from_, "to": to}, returns="models.SeriesOutput")
        return answer

    def read_worker(self, id: str) -> models.WorkerOutput:
        """`GET /api/v1/workers/{id}`: A worker."""
        answer: models.WorkerOutput = self._json("GET", f"/api/v1/workers/{self._part(id)}", returns="models.WorkerOutput")
        return answer

    def read_worker_work(self, id: str) -> models.WorkerWorkOutput:
        """`GET /api/v1/workers/{id}/work`: What a worker did in each of the last minutes, six hours at most, since it connected. The lists are
        empty if it is not connected.
        """
        answer: models.WorkerWorkOutput = self._json("GET", f"/api/v1/workers/{self._part(id)}/work", returns="models.WorkerWorkOutput")
        return answer

    def redrive_job(self, id: str, body: models.RedriveJobInput | Mapping[str, Any] | None = None) -> models.RedriveOutput:
        """`POST /api/v1/jobs/{id}/redrive`: Repeats the dead runs of a job: those that failed for good and that were not repeated yet."""
        answer: models.RedriveOutput = self._json("POST", f"/api/v1/jobs/{self._part(id)}/redrive", body=body, returns="models.RedriveOutput")
        return answer

    def redrive_runs(self, body: models.RedriveInput | Mapping[str, Any] | None = None) -> models.RedrivenRuns:
        """`POST /api/v1/runs/redrive`: Repeats dead runs of one or more jobs: runs that failed for good and that no other run repeats."""
        answer: models.RedrivenRuns = self._json("POST", "/api/v1/runs/redrive", body=body, returns="models.RedrivenRuns")
        return answer

    def register_worker(self, body: models.WorkerInput | Mapping[str, Any]) -> models.WorkerRegistered:
        """`POST /api/v1/workers`: Registers a worker without a socket, with the classes that it watches."""
        answer: models.WorkerRegistered = self._json("POST", "/api/v1/workers", body=body, returns="models.WorkerRegistered")
        return answer

    def release_site(self, name: str) -> models.SiteOutput:
        """`POST /api/v1/sites/{name}/release`: Ends the hold of a site, whatever its reason. Runs continue at once, at the site's pace."""
        answer: models.SiteOutput = self._json("POST", f"/api/v1/sites/{self._part(name)}/release", returns="models.SiteOutput")
        return answer

    def remove_node(self, id: str, *, force: bool | None = None) -> None:
        """`DELETE /api/v1/nodes/{id}`: Removes a node and its status history. A connected node is not removed unless `force` is set, which
        also shuts it down.
        """
        self._none("DELETE", f"/api/v1/nodes/{self._part(id)}", query={"force": force})

    def remove_package(self, sha256: str) -> None:
        """`DELETE /api/v1/packages/{sha256}`: Deletes a package that no job and no open run uses."""
        self._none("DELETE", f"/api/v1/packages/{self._part(sha256)}")

    def report_block(self, body: models.BlockReport | Mapping[str, Any]) -> models.Reported:
        """`POST /node/block`: A node reports the result of a block. The response comes when the report is on disk."""
        answer: models.Reported = self._json("POST", "/node/block", body=body, returns="models.Reported")
        return answer

    def report_tasks(self, id: str, body: Sequence[models.TaskReport | Mapping[str, Any]]) -> list[models.SettledTask]:
        """`POST /api/v1/workers/{id}/reports`: Task reports of a worker without a socket. The response comes when the final reports are on disk."""
        answer: list[models.SettledTask] = self._json("POST", f"/api/v1/workers/{self._part(id)}/reports", body=body, returns="list[models.SettledTask]")
        return answer

    def requeue_requests(self, id: str, body: models.RequeueInput | Mapping[str, Any] | None = None) -> models.Requeued:
        """`POST /api/v1/runs/{id}/requests/requeue`: Queues failed requests of a block run again, each at most once. Each repetition is a new request and
        counts as one. If the run is over, a new run of its job begins with them instead of its first
        requests.
        """
        answer: models.Requeued = self._json("POST", f"/api/v1/runs/{self._part(id)}/requests/requeue", body=body, returns="models.Requeued")
        return answer

    def restore_job(self, id: str) -> models.JobOutput:
        """`POST /api/v1/jobs/{id}/restore`: Restores a deleted job. It is disabled afterwards."""
        answer: models.JobOutput = self._json("POST", f"/api/v1/jobs/{self._part(id)}/restore", returns="models.JobOutput")
        return answer

    def resume_run(self, id: str) -> models.RunOutput:
        """`POST /api/v1/runs/{id}/resume`: Resumes a paused block run: it dispatches blocks again."""
        answer: models.RunOutput = self._json("POST", f"/api/v1/runs/{self._part(id)}/resume", returns="models.RunOutput")
        return answer

    def retry_run(self, id: str) -> models.RunOutput:
        """`POST /api/v1/runs/{id}/retry`: Repeats a run, as a new run."""
        answer: models.RunOutput = self._json("POST", f"/api/v1/runs/{self._part(id)}/retry", returns="models.RunOutput")
        return answer

    def revoke_token(self, name: str) -> None:
        """`DELETE /api/v1/tokens/{name}`: Revokes a token. What was opened with it, such as WebSockets and waiting calls, ends at once; at a
        standby within about a second.
        """
        self._none("DELETE", f"/api/v1/tokens/{self._part(name)}")

    def start_returned(self, id: str, body: models.StartReturned | Mapping[str, Any] | None = None) -> None:
        """`POST /api/v1/runs/{id}/start-returned`: A worker reports that it pushed the first requests of a run, or that it failed to."""
        self._none("POST", f"/api/v1/runs/{self._part(id)}/start-returned", body=body)

    def stop_run(self, id: str) -> models.RunOutput:
        """`POST /api/v1/runs/{id}/stop`: Stops a run. Programs get a stop request, and are killed after their grace period; until then the
        response shows the current state.
        """
        answer: models.RunOutput = self._json("POST", f"/api/v1/runs/{self._part(id)}/stop", returns="models.RunOutput")
        return answer

    def test_alert(self, id: str) -> models.AlertTestOutput:
        """`POST /api/v1/alerts/{id}/test`: Sends a test event at once and returns the result."""
        answer: models.AlertTestOutput = self._json("POST", f"/api/v1/alerts/{self._part(id)}/test", returns="models.AlertTestOutput")
        return answer

    def trigger_job(self, id: str, body: models.TriggerInput | Mapping[str, Any] | None = None) -> models.RunOutput:
        """`POST /api/v1/jobs/{id}/trigger`: Triggers a job. Calls with the same `fireTime` or `Idempotency-Key` make one run."""
        answer: models.RunOutput = self._json("POST", f"/api/v1/jobs/{self._part(id)}/trigger", body=body, returns="models.RunOutput")
        return answer

    def trigger_job_batch(self, id: str, body: Sequence[models.TriggerInput | Mapping[str, Any]]) -> list[models.TriggeredOutput]:
        """`POST /api/v1/jobs/{id}/trigger/batch`: Triggers a job up to 1,000 times, each with its own arguments and result. All accepted triggers are on
        disk when the response comes.
        """
        answer: list[models.TriggeredOutput] = self._json("POST", f"/api/v1/jobs/{self._part(id)}/trigger/batch", body=body, returns="list[models.TriggeredOutput]")
        return answer

    def update_alert(self, id: str, body: models.AlertInput | models.AlertOutput | Mapping[str, Any]) -> models.AlertOutput:
        """`PUT /api/v1/alerts/{id}`: Changes a channel. What is left out stays as it is."""
        answer: models.AlertOutput = self._json("PUT", f"/api/v1/alerts/{self._part(id)}", body=body, returns="models.AlertOutput")
        return answer

    def update_group(self, id: str, body: models.GroupInput | models.GroupOutput | Mapping[str, Any]) -> models.GroupOutput:
        """`PUT /api/v1/groups/{id}`: Changes a group. Its jobs refer to it by the new name from then on."""
        answer: models.GroupOutput = self._json("PUT", f"/api/v1/groups/{self._part(id)}", body=body, returns="models.GroupOutput")
        return answer

    def update_job(self, id: str, body: models.JobInput | models.JobOutput | Mapping[str, Any]) -> models.JobOutput:
        """`PUT /api/v1/jobs/{id}`: Changes a job. What is left out stays as it is; `If-Match` or `version` names the version that was
        read.
        """
        answer: models.JobOutput = self._json("PUT", f"/api/v1/jobs/{self._part(id)}", body=body, returns="models.JobOutput")
        return answer

    def worker_heartbeat(self, id: str, body: models.HandsInput | Mapping[str, Any]) -> None:
        """`POST /api/v1/workers/{id}/heartbeat`: Heartbeat of a worker without a socket, with its current tasks: their leases are renewed."""
        self._none("POST", f"/api/v1/workers/{self._part(id)}/heartbeat", body=body)


class AsyncioCalls(AsyncCalls):
    """A method for each call."""

    async def acknowledge_blocks(self, identity: str, body: models.AckCall | Mapping[str, Any]) -> models.Pushed:
        """`POST /requestqueue/{identity}/ack`: Acknowledges blocks and pushes their follow-up requests, in one transaction."""
        answer: models.Pushed = await self._json("POST", f"/requestqueue/{self._part(identity)}/ack", body=body, returns="models.Pushed")
        return answer

    async def allow_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/allow`: Admits a kicked worker again. It does not change other workers."""
        answer: models.WorkerOutput = await self._json("POST", f"/api/v1/workers/{self._part(id)}/allow", body=body, returns="models.WorkerOutput")
        return answer

    async def append_logs(self, id: str, body: Sequence[models.LogInput | Mapping[str, Any]]) -> models.LogAccepted:
        """`POST /api/v1/runs/{id}/logs`: A worker appends lines to the log of a run."""
        answer: models.LogAccepted = await self._json("POST", f"/api/v1/runs/{self._part(id)}/logs", body=body, returns="models.LogAccepted")
        return answer

    async def ask_next(self, id: str, body: models.AskInput | Mapping[str, Any]) -> models.NextFire:
        """`POST /api/v1/runs/{id}/next`: A run sets the next fire of its job. This replaces the schedule once."""
        answer: models.NextFire = await self._json("POST", f"/api/v1/runs/{self._part(id)}/next", body=body, returns="models.NextFire")
        return answer

    async def backfill_job(self, id: str, body: models.BackfillInput | Mapping[str, Any]) -> models.BackfillOutput:
        """`POST /api/v1/jobs/{id}/backfill`: Creates the missing runs for the scheduled times of a past range."""
        answer: models.BackfillOutput = await self._json("POST", f"/api/v1/jobs/{self._part(id)}/backfill", body=body, returns="models.BackfillOutput")
        return answer

    async def beat(self, body: models.HeartbeatCall | Mapping[str, Any]) -> models.BlockForNode | None:
        """`POST /node/heartbeat`: Heartbeat of a node without a socket: it sends its facts and gets a block or nothing."""
        answer: models.BlockForNode | None = await self._json("POST", "/node/heartbeat", body=body, returns="models.BlockForNode | None")
        return answer

    async def call_hook(self, hook: str, content: bytes) -> models.HookAnswer:
        """`POST /hooks/{hook}`: Triggers the job of a hook; the body becomes the arguments of the run. It needs no token, but the
        secret of the hook in `Webloom-Secret`, or a signature of the body in `X-Hub-Signature-256`. Calls
        with one `Idempotency-Key` (or `X-GitHub-Delivery`) make one run.
        """
        answer: models.HookAnswer = await self._json("POST", f"/hooks/{self._part(hook)}", content=content, returns="models.HookAnswer")
        return answer

    async def clear_job_data(self, id: str) -> None:
        """`DELETE /api/v1/jobs/{id}/data`: Deletes the data for the next run."""
        await self._none("DELETE", f"/api/v1/jobs/{self._part(id)}/data")

    async def count_failed_requests(self, id: str) -> models.FailureCounts:
        """`GET /api/v1/runs/{id}/requests/counts`: Counts the failed requests of a block run by kind, and by status where the site sent a complete
        response.
        """
        answer: models.FailureCounts = await self._json("GET", f"/api/v1/runs/{self._part(id)}/requests/counts", returns="models.FailureCounts")
        return answer

    async def create_alert(self, body: models.AlertInput | models.AlertOutput | Mapping[str, Any]) -> models.AlertOutput:
        """`POST /api/v1/alerts`: Adds a channel: a webhook or a mail address."""
        answer: models.AlertOutput = await self._json("POST", "/api/v1/alerts", body=body, returns="models.AlertOutput")
        return answer

    async def create_group(self, body: models.GroupInput | models.GroupOutput | Mapping[str, Any]) -> models.GroupOutput:
        """`POST /api/v1/groups`: Creates a group."""
        answer: models.GroupOutput = await self._json("POST", "/api/v1/groups", body=body, returns="models.GroupOutput")
        return answer

    async def create_hook(self, id: str, body: models.HookInput | Mapping[str, Any]) -> models.NewHook:
        """`POST /api/v1/jobs/{id}/hooks`: Creates a hook of a job. Its secret is in this response only."""
        answer: models.NewHook = await self._json("POST", f"/api/v1/jobs/{self._part(id)}/hooks", body=body, returns="models.NewHook")
        return answer

    async def create_job(self, body: models.JobInput | models.JobOutput | Mapping[str, Any], *, dry_run: bool | None = None) -> models.JobOutput:
        """`POST /api/v1/jobs`: Creates a job, or only checks it."""
        answer: models.JobOutput = await self._json("POST", "/api/v1/jobs", body=body, query={"dryRun": dry_run}, returns="models.JobOutput")
        return answer

    async def create_token(self, body: models.TokenInput | Mapping[str, Any]) -> models.NewToken:
        """`POST /api/v1/tokens`: Creates a named token. Its text is in this response only: the broker stores its SHA-256."""
        answer: models.NewToken = await self._json("POST", "/api/v1/tokens", body=body, returns="models.NewToken")
        return answer

    async def delete_alert(self, id: str) -> None:
        """`DELETE /api/v1/alerts/{id}`: Removes a channel."""
        await self._none("DELETE", f"/api/v1/alerts/{self._part(id)}")

    async def delete_group(self, id: str) -> None:
        """`DELETE /api/v1/groups/{id}`: Deletes a group that has no jobs."""
        await self._none("DELETE", f"/api/v1/groups/{self._part(id)}")

    async def delete_hook(self, id: str, hook: str) -> None:
        """`DELETE /api/v1/jobs/{id}/hooks/{hook}`: Deletes a hook of a job: its address is rejected from now on."""
        await self._none("DELETE", f"/api/v1/jobs/{self._part(id)}/hooks/{self._part(hook)}")

    async def delete_job(self, id: str) -> None:
        """`DELETE /api/v1/jobs/{id}`: Deletes a job: it is marked as deleted, and no longer triggered or scheduled. Its history stays."""
        await self._none("DELETE", f"/api/v1/jobs/{self._part(id)}")

    async def disable_group(self, id: str, body: models.DisableInput | Mapping[str, Any] | None = None) -> models.GroupSwitched:
        """`POST /api/v1/groups/{id}/disable`: Disables all jobs of a group."""
        answer: models.GroupSwitched = await self._json("POST", f"/api/v1/groups/{self._part(id)}/disable", body=body, returns="models.GroupSwitched")
        return answer

    async def disable_job(self, id: str, body: models.DisableInput | Mapping[str, Any] | None = None) -> models.JobOutput:
        """`POST /api/v1/jobs/{id}/disable`: Disables a job: its schedule and triggers start no runs."""
        answer: models.JobOutput = await self._json("POST", f"/api/v1/jobs/{self._part(id)}/disable", body=body, returns="models.JobOutput")
        return answer

    async def disable_node(self, id: str, body: models.Reason | Mapping[str, Any] | None = None) -> models.NodeOutput:
        """`POST /api/v1/nodes/{id}/disable`: Stops sending work to a node. It finishes its current work."""
        answer: models.NodeOutput = await self._json("POST", f"/api/v1/nodes/{self._part(id)}/disable", body=body, returns="models.NodeOutput")
        return answer

    async def disable_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/disable`: Stops sending work to a worker. It may finish and report its current work."""
        answer: models.WorkerOutput = await self._json("POST", f"/api/v1/workers/{self._part(id)}/disable", body=body, returns="models.WorkerOutput")
        return answer

    async def discard_requests(self, id: str, body: models.DiscardInput | Mapping[str, Any]) -> models.Discarded:
        """`POST /api/v1/runs/{id}/requests/discard`: Discards pending requests of a block run that is under way: each gets a failure of the kind
        `discarded`, which its worker receives. Those at nodes are left alone.
        """
        answer: models.Discarded = await self._json("POST", f"/api/v1/runs/{self._part(id)}/requests/discard", body=body, returns="models.Discarded")
        return answer

    async def drain_broker(self, id: str) -> models.BrokerOutput:
        """`POST /api/v1/brokers/{id}/drain`: The leader takes over the runs of a standby that wait, and attempts that have begun are finished
        there, so that it can be stopped without repeating an attempt. It gets no more runs. The broker gets
        runs again when it is started again.
        """
        answer: models.BrokerOutput = await self._json("POST", f"/api/v1/brokers/{self._part(id)}/drain", returns="models.BrokerOutput")
        return answer

    async def drain_node(self, id: str, body: models.Reason | Mapping[str, Any] | None = None) -> models.NodeOutput:
        """`POST /api/v1/nodes/{id}/drain`: Stops sending work to a node. It finishes its current work and exits. It gets no work until it is
        enabled.
        """
        answer: models.NodeOutput = await self._json("POST", f"/api/v1/nodes/{self._part(id)}/drain", body=body, returns="models.NodeOutput")
        return answer

    async def drain_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/drain`: Stops sending work to a worker, and orders it to leave when its current work is finished."""
        answer: models.WorkerOutput = await self._json("POST", f"/api/v1/workers/{self._part(id)}/drain", body=body, returns="models.WorkerOutput")
        return answer

    async def enable_group(self, id: str) -> models.GroupSwitched:
        """`POST /api/v1/groups/{id}/enable`: Enables all jobs of a group."""
        answer: models.GroupSwitched = await self._json("POST", f"/api/v1/groups/{self._part(id)}/enable", returns="models.GroupSwitched")
        return answer

    async def enable_job(self, id: str) -> models.JobOutput:
        """`POST /api/v1/jobs/{id}/enable`: Enables a job: its schedule and triggers start runs."""
        answer: models.JobOutput = await self._json("POST", f"/api/v1/jobs/{self._part(id)}/enable", returns="models.JobOutput")
        return answer

    async def enable_node(self, id: str) -> models.NodeOutput:
        """`POST /api/v1/nodes/{id}/enable`: Enables a node: it gets work again, whatever order it had before."""
        answer: models.NodeOutput = await self._json("POST", f"/api/v1/nodes/{self._part(id)}/enable", returns="models.NodeOutput")
        return answer

    async def enable_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/enable`: Enables a worker: it gets work again."""
        answer: models.WorkerOutput = await self._json("POST", f"/api/v1/workers/{self._part(id)}/enable", body=body, returns="models.WorkerOutput")
        return answer

    async def exit_node(self, id: str, body: models.Reason | Mapping[str, Any] | None = None) -> models.NodeOutput:
        """`POST /api/v1/nodes/{id}/exit`: Shuts down a node's agent and its programs. The order is repeated at every connection until the node
        is enabled.
        """
        answer: models.NodeOutput = await self._json("POST", f"/api/v1/nodes/{self._part(id)}/exit", body=body, returns="models.NodeOutput")
        return answer

    async def explain_fire(self, id: str, *, at: datetime | None = None) -> models.WhyOutput:
        """`GET /api/v1/jobs/{id}/why`: Explains why a time made a run of a job, or none."""
        answer: models.WhyOutput = await self._json("GET", f"/api/v1/jobs/{self._part(id)}/why", query={"at": at}, returns="models.WhyOutput")
        return answer

    async def explain_run(self, id: str) -> models.WhyOutput:
        """`GET /api/v1/runs/{id}/why`: Explains the state of a run: what it waits for, which worker or node has it, or how it ended."""
        answer: models.WhyOutput = await self._json("GET", f"/api/v1/runs/{self._part(id)}/why", returns="models.WhyOutput")
        return answer

    async def explain_url(self, id: str, *, url: str) -> models.WhyOutput:
        """`GET /api/v1/runs/{id}/why-url`: Explains why a block run has no result for a URL: where its request is, and what it waits for."""
        answer: models.WhyOutput = await self._json("GET", f"/api/v1/runs/{self._part(id)}/why-url", query={"url": url}, returns="models.WhyOutput")
        return answer

    async def export_jobs(self, *, group: str | None = None, name: str | None = None) -> list[models.ExportedJob]:
        """`GET /api/v1/jobs/export`: Exports jobs as a file, sorted by name. YAML, unless `Accept` asks for JSON. The secret of a callback
        is empty; other secrets are masked for all but an admin.
        """
        answer: list[models.ExportedJob] = await self._json("GET", "/api/v1/jobs/export", query={"group": group, "name": name}, returns="list[models.ExportedJob]")
        return answer

    async def fetch_messages(self, id: str, *, wait: float | None = None) -> list[models.ToWorker] | None:
        """`GET /api/v1/workers/{id}/messages`: Returns the broker's messages to a worker without a socket. The call is also its heartbeat."""
        answer: list[models.ToWorker] | None = await self._json("GET", f"/api/v1/workers/{self._part(id)}/messages", query={"wait": wait}, returns="list[models.ToWorker] | None")
        return answer

    async def fetch_package(self, sha256: str) -> bytes:
        """`GET /api/v1/packages/{sha256}`: The bytes of a package."""
        return await self._bytes("GET", f"/api/v1/packages/{self._part(sha256)}")

    async def follow_logs(self, id: str, *, after: int | None = None, level: str | None = None, text: str | None = None, wait: float | None = None) -> str:
        """`GET /api/v1/runs/{id}/logs/stream`: Follows the log of a run, as server-sent events: `line`, `state`, `end`. `Last-Event-ID` continues
        after that line.
        """
        return await self._text("GET", f"/api/v1/runs/{self._part(id)}/logs/stream", query={"after": after, "level": level, "text": text, "wait": wait})

    async def forget_worker(self, id: str, *, force: bool | None = None) -> None:
        """`DELETE /api/v1/workers/{id}`: Deletes a worker. A connected worker is not deleted unless `force` is set: then it is evicted, and its
        work goes to other workers.
        """
        await self._none("DELETE", f"/api/v1/workers/{self._part(id)}", query={"force": force})

    async def hold_site(self, name: str, body: models.HoldInput | Mapping[str, Any]) -> models.SiteOutput:
        """`POST /api/v1/sites/{name}/hold`: Puts a site on hold: no run starts a request there until the hold ends, and nodes are ordered to drop
        their blocks of it.
        """
        answer: models.SiteOutput = await self._json("POST", f"/api/v1/sites/{self._part(name)}/hold", body=body, returns="models.SiteOutput")
        return answer

    async def import_jobs(self, body: models.ImportBody | Mapping[str, Any] | Sequence[Any], *, dry_run: bool | None = None) -> list[models.ImportedJob]:
        """`POST /api/v1/jobs/import`: Creates or changes jobs from a JSON or YAML file, by name. All are checked before any is written."""
        answer: list[models.ImportedJob] = await self._json("POST", "/api/v1/jobs/import", body=body, query={"dryRun": dry_run}, returns="list[models.ImportedJob]")
        return answer

    async def kick_worker(self, id: str, body: models.ReasonInput | Mapping[str, Any] | None = None) -> models.WorkerOutput:
        """`POST /api/v1/workers/{id}/kick`: Kicks a worker: its work goes to other workers, and it is rejected until it is allowed again."""
        answer: models.WorkerOutput = await self._json("POST", f"/api/v1/workers/{self._part(id)}/kick", body=body, returns="models.WorkerOutput")
        return answer

    async def list_actor_kinds(self) -> models.Kinds:
        """`GET /api/v1/actors/kinds`: The kinds of actors that the brokers have now, with the sums of each."""
        answer: models.Kinds = await self._json("GET", "/api/v1/actors/kinds", returns="models.Kinds")
        return answer

    async def list_actors(self, *, after: str | None = None, errors: bool | None = None, kind: str | None = None, limit: int | None = None, text: str | None = None) -> list[models.ActorOutput]:
        """`GET /api/v1/actors`: Lists the actors of all brokers, by kind and name: all of them, or those that a filter selects."""
        answer: list[models.ActorOutput] = await self._json("GET", "/api/v1/actors", query={"after": after, "errors": errors, "kind": kind, "limit": limit, "text": text}, returns="list[models.ActorOutput]")
        return answer

    async def list_alert_events(self, *, cursor: str | None = None, limit: int | None = None) -> models.AlertEventOutputPage:
        """`GET /api/v1/alerts/events`: Lists alert events, newest first, and the channels that they were sent to."""
        answer: models.AlertEventOutputPage = await self._json("GET", "/api/v1/alerts/events", query={"cursor": cursor, "limit": limit}, returns="models.AlertEventOutputPage")
        return answer

    async def list_alerts(self) -> models.Channels:
        """`GET /api/v1/alerts`: Lists the channels that alerts go to."""
        answer: models.Channels = await self._json("GET", "/api/v1/alerts", returns="models.Channels")
        return answer

    async def list_attempts(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.AttemptOutputPage:
        """`GET /api/v1/runs/{id}/attempts`: Lists the attempts of a run that had more than one, by instance and attempt: of each instance the last
        100. The current or last attempt of a program, and of a task on several workers, is in the list of
        instances only. A run with one attempt has none here: its times are its attempt's.
        """
        answer: models.AttemptOutputPage = await self._json("GET", f"/api/v1/runs/{self._part(id)}/attempts", query={"cursor": cursor, "limit": limit}, returns="models.AttemptOutputPage")
        return answer

    async def list_audit(self, *, caller: str | None = None, cursor: str | None = None, from_: datetime | None = None, kind: str | None = None, limit: int | None = None, object: str | None = None, operation: str | None = None, to: datetime | None = None) -> models.AuditOutputPage:
        """`GET /api/v1/audit`: Lists the calls that change something, newest first: who made them, from where, on which object, and
        their results. Calls that nodes and workers make for their work are not listed.
        """
        answer: models.AuditOutputPage = await self._json("GET", "/api/v1/audit", query={"caller": caller, "cursor": cursor, "from": from_, "kind": kind, "limit": limit, "object": object, "operation": operation, "to": to}, returns="models.AuditOutputPage")
        return answer

    async def list_blocks(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.BlockOutputPage:
        """`GET /api/v1/runs/{id}/blocks`: Lists the blocks of a run, in the order of their numbers."""
        answer: models.BlockOutputPage = await self._json("GET", f"/api/v1/runs/{self._part(id)}/blocks", query={"cursor": cursor, "limit": limit}, returns="models.BlockOutputPage")
        return answer

    async def list_brokers(self) -> list[models.BrokerOutput]:
        """`GET /api/v1/brokers`: Lists the brokers of the database: the leader and the standbys."""
        answer: list[models.BrokerOutput] = await self._json("GET", "/api/v1/brokers", returns="list[models.BrokerOutput]")
        return answer

    async def list_changes(self, *, cursor: str | None = None, limit: int | None = None) -> models.JobChangePage:
        """`GET /api/v1/changes`: The changes of all jobs, newest first."""
        answer: models.JobChangePage = await self._json("GET", "/api/v1/changes", query={"cursor": cursor, "limit": limit}, returns="models.JobChangePage")
        return answer

    async def list_changes_of_job(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.JobChangePage:
        """`GET /api/v1/jobs/{id}/history`: The changes of a job, newest first: who, when, and the new values."""
        answer: models.JobChangePage = await self._json("GET", f"/api/v1/jobs/{self._part(id)}/history", query={"cursor": cursor, "limit": limit}, returns="models.JobChangePage")
        return answer

    async def list_fires(self, id: str, *, cursor: str | None = None, from_: datetime | None = None, limit: int | None = None, to: datetime | None = None, verdict: str | None = None) -> models.FireOutputPage:
        """`GET /api/v1/jobs/{id}/fires`: The ledger of a job: the outcome of each scheduled time, newest first."""
        answer: models.FireOutputPage = await self._json("GET", f"/api/v1/jobs/{self._part(id)}/fires", query={"cursor": cursor, "from": from_, "limit": limit, "to": to, "verdict": verdict}, returns="models.FireOutputPage")
        return answer

    async def list_groups(self, *, cursor: str | None = None, limit: int | None = None) -> models.GroupOutputPage:
        """`GET /api/v1/groups`: Lists groups by their names."""
        answer: models.GroupOutputPage = await self._json("GET", "/api/v1/groups", query={"cursor": cursor, "limit": limit}, returns="models.GroupOutputPage")
        return answer

    async def list_hooks(self, id: str) -> models.HooksOutput:
        """`GET /api/v1/jobs/{id}/hooks`: Lists the hooks of a job: addresses at which other systems trigger it."""
        answer: models.HooksOutput = await self._json("GET", f"/api/v1/jobs/{self._part(id)}/hooks", returns="models.HooksOutput")
        return answer

    async def list_instances(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.InstanceOutputPage:
        """`GET /api/v1/runs/{id}/instances`: Lists the instances of a run, each with its current or last worker or node. A task that went to one
        worker has one; block runs and callbacks have none.
        """
        answer: models.InstanceOutputPage = await self._json("GET", f"/api/v1/runs/{self._part(id)}/instances", query={"cursor": cursor, "limit": limit}, returns="models.InstanceOutputPage")
        return answer

    async def list_jobs(self, *, cursor: str | None = None, deleted: bool | None = None, enabled: bool | None = None, group: str | None = None, id: str | None = None, kind: models.JobKind | None = None, limit: int | None = None, name: str | None = None, sort: str | None = None) -> models.JobOutputPage:
        """`GET /api/v1/jobs`: Lists jobs, by default oldest first."""
        answer: models.JobOutputPage = await self._json("GET", "/api/v1/jobs", query={"cursor": cursor, "deleted": deleted, "enabled": enabled, "group": group, "id": id, "kind": kind, "limit": limit, "name": name, "sort": sort}, returns="models.JobOutputPage")
        return answer

    async def list_next_fires(self, id: str, *, after: datetime | None = None, count: int | None = None) -> models.PreviewOutput:
        """`GET /api/v1/jobs/{id}/next`: Lists the next fires of a job, as its schedule stands now."""
        answer: models.PreviewOutput = await self._json("GET", f"/api/v1/jobs/{self._part(id)}/next", query={"after": after, "count": count}, returns="models.PreviewOutput")
        return answer

    async def list_node_connections(self, id: str, *, limit: int | None = None) -> models.NodeConnectionOutputPage:
        """`GET /api/v1/nodes/{id}/connections`: Lists the connections of a node, newest first: at most its last 100."""
        answer: models.NodeConnectionOutputPage = await self._json("GET", f"/api/v1/nodes/{self._part(id)}/connections", query={"limit": limit}, returns="models.NodeConnectionOutputPage")
        return answer

    async def list_node_statuses(self, id: str, *, from_: datetime | None = None, limit: int | None = None, step: int | None = None, to: datetime | None = None) -> models.NodeStatusOutputPage:
        """`GET /api/v1/nodes/{id}/statuses`: Lists the status of a node from its heartbeats, newest first."""
        answer: models.NodeStatusOutputPage = await self._json("GET", f"/api/v1/nodes/{self._part(id)}/statuses", query={"from": from_, "limit": limit, "step": step, "to": to}, returns="models.NodeStatusOutputPage")
        return answer

    async def list_nodes(self) -> models.NodeOutputPage:
        """`GET /api/v1/nodes`: Lists all nodes ever seen."""
        answer: models.NodeOutputPage = await self._json("GET", "/api/v1/nodes", returns="models.NodeOutputPage")
        return answer

    async def list_packages(self) -> models.PackageOutputPage:
        """`GET /api/v1/packages`: Lists the packages that the broker stores, newest first."""
        answer: models.PackageOutputPage = await self._json("GET", "/api/v1/packages", returns="models.PackageOutputPage")
        return answer

    async def list_pending_requests(self, id: str, *, cursor: str | None = None, limit: int | None = None, max_depth: int | None = None, min_depth: int | None = None, site: str | None = None, url: str | None = None) -> models.PendingRequestPage:
        """`GET /api/v1/runs/{id}/requests/pending`: Lists the requests of a block run that have no results yet, in the order of their blocks; those at
        nodes are among them. A page may be short though more follow.
        """
        answer: models.PendingRequestPage = await self._json("GET", f"/api/v1/runs/{self._part(id)}/requests/pending", query={"cursor": cursor, "limit": limit, "maxDepth": max_depth, "minDepth": min_depth, "site": site, "url": url}, returns="models.PendingRequestPage")
        return answer

    async def list_requests(self, id: str, *, cursor: str | None = None, kind: models.FetchErrorKind | None = None, limit: int | None = None, site: str | None = None, state: models.RequestState | None = None, status: int | None = None) -> models.FailedRequestPage:
        """`GET /api/v1/runs/{id}/requests`: Lists the requests of a block run that failed, in the order of their blocks. A page may be short even
        if more pages follow.
        """
        answer: models.FailedRequestPage = await self._json("GET", f"/api/v1/runs/{self._part(id)}/requests", query={"cursor": cursor, "kind": kind, "limit": limit, "site": site, "state": state, "status": status}, returns="models.FailedRequestPage")
        return answer

    async def list_results(self, id: str, *, cursor: str | None = None, limit: int | None = None) -> models.FinishedBlockPage:
        """`GET /api/v1/runs/{id}/results`: Reads the results of a block run that no worker has acknowledged, in the order of their blocks, and
        leaves them as they are. Acknowledged results, and those of a run that is over, are deleted. A page
        ends early where it becomes large. If `Accept` asks for `application/jsonl`, all results are sent from
        the cursor on, a line of JSON for each; of other runs, then, what the run or its instances left.
        """
        answer: models.FinishedBlockPage = await self._json("GET", f"/api/v1/runs/{self._part(id)}/results", query={"cursor": cursor, "limit": limit}, returns="models.FinishedBlockPage")
        return answer

    async def list_run_sites(self, id: str, *, cursor: str | None = None, errors: bool | None = None, limit: int | None = None) -> models.RunSiteOutputPage:
        """`GET /api/v1/runs/{id}/sites`: Lists the sites of a block run, in the order of their first requests; of a run that has ended, by
        name. A host without a pace is listed only if its robots.txt is obeyed, its requests are limited
        (`MaxPerSite`), or it is or was on hold. A run of another kind has no sites.
        """
        answer: models.RunSiteOutputPage = await self._json("GET", f"/api/v1/runs/{self._part(id)}/sites", query={"cursor": cursor, "errors": errors, "limit": limit}, returns="models.RunSiteOutputPage")
        return answer

    async def list_runs(self, *, cursor: str | None = None, from_: datetime | None = None, group: str | None = None, id: str | None = None, job_id: str | None = None, kind: models.JobKind | None = None, limit: int | None = None, sort: str | None = None, state: models.RunState | None = None, to: datetime | None = None, trace_id: str | None = None) -> models.RunOutputPage:
        """`GET /api/v1/runs`: Lists runs, by default newest first."""
        answer: models.RunOutputPage = await self._json("GET", "/api/v1/runs", query={"cursor": cursor, "from": from_, "group": group, "id": id, "jobId": job_id, "kind": kind, "limit": limit, "sort": sort, "state": state, "to": to, "traceId": trace_id}, returns="models.RunOutputPage")
        return answer

    async def list_settings(self) -> models.Settings:
        """`GET /api/v1/settings`: Lists the settings that are in force at this broker, without secrets and paths."""
        answer: models.Settings = await self._json("GET", "/api/v1/settings", returns="models.Settings")
        return answer

    async def list_sites(self, *, cursor: str | None = None, held: bool | None = None, limit: int | None = None, name: str | None = None) -> models.SiteOutputPage:
        """`GET /api/v1/sites`: Lists sites by name: those that runs requested lately, that are on hold, or that fail."""
        answer: models.SiteOutputPage = await self._json("GET", "/api/v1/sites", query={"cursor": cursor, "held": held, "limit": limit, "name": name}, returns="models.SiteOutputPage")
        return answer

    async def list_tokens(self) -> models.TokensOutput:
        """`GET /api/v1/tokens`: Lists the named tokens, without their texts. Tokens of the command line and of the token file are not
        listed.
        """
        answer: models.TokensOutput = await self._json("GET", "/api/v1/tokens", returns="models.TokensOutput")
        return answer

    async def list_warnings(self) -> models.Warnings:
        """`GET /api/v1/warnings`: Lists what an operator should look at, at most twenty of each kind."""
        answer: models.Warnings = await self._json("GET", "/api/v1/warnings", returns="models.Warnings")
        return answer

    async def list_watches(self, *, limit: int | None = None, worker: str | None = None) -> models.WorkerWatchPage:
        """`GET /api/v1/workers/watches`: Lists which worker watched which class from when to when, newest first."""
        answer: models.WorkerWatchPage = await self._json("GET", "/api/v1/workers/watches", query={"limit": limit, "worker": worker}, returns="models.WorkerWatchPage")
        return answer

    async def list_workers(self, *, cursor: str | None = None, group: str | None = None, limit: int | None = None, online: bool | None = None, state: models.WorkerState | None = None) -> models.WorkerOutputPage:
        """`GET /api/v1/workers`: Lists workers by id: connected ones and former ones."""
        answer: models.WorkerOutputPage = await self._json("GET", "/api/v1/workers", query={"cursor": cursor, "group": group, "limit": limit, "online": online, "state": state}, returns="models.WorkerOutputPage")
        return answer

    async def pause_run(self, id: str) -> models.RunOutput:
        """`POST /api/v1/runs/{id}/pause`: Pauses a block run: it dispatches no more blocks. Blocks at nodes still finish, and results are
        delivered. Its timeout continues.
        """
        answer: models.RunOutput = await self._json("POST", f"/api/v1/runs/{self._part(id)}/pause", returns="models.RunOutput")
        return answer

    async def poll_blocks(self, identity: str, *, ack: str | None = None, max: int | None = None, wait: float | None = None, worker: str | None = None) -> models.Polled | None:
        """`GET /requestqueue/{identity}`: Delivers finished blocks of a run. The bulk form is described in docs/protocol.md."""
        answer: models.Polled | None = await self._json("GET", f"/requestqueue/{self._part(identity)}", query={"ack": ack, "max": max, "wait": wait, "worker": worker}, returns="models.Polled | None")
        return answer

    async def preview_schedule(self, body: models.PreviewInput | Mapping[str, Any]) -> models.PreviewOutput:
        """`POST /api/v1/jobs/preview`: Previews the fires of a schedule without storing it."""
        answer: models.PreviewOutput = await self._json("POST", "/api/v1/jobs/preview", body=body, returns="models.PreviewOutput")
        return answer

    async def purge_job(self, id: str) -> None:
        """`POST /api/v1/jobs/{id}/purge`: Removes a deleted job from the store for good. All its runs must have ended."""
        await self._none("POST", f"/api/v1/jobs/{self._part(id)}/purge")

    async def push_package(self, content: bytes, *, name: str | None = None) -> models.PackageOutput:
        """`POST /api/v1/packages`: Stores a package: a zip or a tar.gz, as the body. Sending the same bytes again changes nothing."""
        answer: models.PackageOutput = await self._json("POST", "/api/v1/packages", content=content, query={"name": name}, returns="models.PackageOutput")
        return answer

    async def push_requests(self, identity: str, body: models.PushInput | Mapping[str, Any] | Sequence[Any]) -> models.Pushed:
        """`POST /requestqueue/{identity}`: Pushes requests into the queue of a run. A request that the run has already seen is not added again."""
        answer: models.Pushed = await self._json("POST", f"/requestqueue/{self._part(identity)}", body=body, returns="models.Pushed")
        return answer

    async def put_job_data(self, id: str, body: models.JobDataInput | Mapping[str, Any]) -> None:
        """`PUT /api/v1/jobs/{id}/data`: Replaces the data for the next run. Runs in progress keep the data that they have."""
        await self._none("PUT", f"/api/v1/jobs/{self._part(id)}/data", body=body)

    async def read_actor(self, kind: str, name: str, *, broker_id: str | None = None) -> models.ActorDetail:
        """`GET /api/v1/actors/{kind}/{name}`: An actor, its messages by type, and why it was restarted. An actor is there only while it has work."""
        answer: models.ActorDetail = await self._json("GET", f"/api/v1/actors/{self._part(kind)}/{self._part(name)}", query={"brokerId": broker_id}, returns="models.ActorDetail")
        return answer

    async def read_alert(self, id: str) -> models.AlertOutput:
        """`GET /api/v1/alerts/{id}`: A channel."""
        answer: models.AlertOutput = await self._json("GET", f"/api/v1/alerts/{self._part(id)}", returns="models.AlertOutput")
        return answer

    async def read_group(self, id: str) -> models.GroupOutput:
        """`GET /api/v1/groups/{id}`: A group."""
        answer: models.GroupOutput = await self._json("GET", f"/api/v1/groups/{self._part(id)}", returns="models.GroupOutput")
        return answer

    async def read_health(self) -> str:
        """`GET /healthz`: Liveness: the process responds."""
        return await self._text("GET", "/healthz")

    async def read_job(self, id: str) -> models.JobOutput:
        """`GET /api/v1/jobs/{id}`: A job."""
        answer: models.JobOutput = await self._json("GET", f"/api/v1/jobs/{self._part(id)}", returns="models.JobOutput")
        return answer

    async def read_job_data(self, id: str) -> models.JobDataOutput:
        """`GET /api/v1/jobs/{id}/data`: The data that the last run of a job stored for the next one. 404 if there is none."""
        answer: models.JobDataOutput = await self._json("GET", f"/api/v1/jobs/{self._part(id)}/data", returns="models.JobDataOutput")
        return answer

    async def read_lateness(self, id: str) -> models.Lateness:
        """`GET /api/v1/jobs/{id}/lateness`: The lateness of the most recent scheduled runs of a job."""
        answer: models.Lateness = await self._json("GET", f"/api/v1/jobs/{self._part(id)}/lateness", returns="models.Lateness")
        return answer

    async def read_logs(self, id: str, *, after: int | None = None, level: str | None = None, limit: int | None = None, since: datetime | None = None, text: str | None = None, until: datetime | None = None, wait: float | None = None) -> models.LogPage:
        """`GET /api/v1/runs/{id}/logs`: The log of a run, in the order of arrival. The call can wait for new lines."""
        answer: models.LogPage = await self._json("GET", f"/api/v1/runs/{self._part(id)}/logs", query={"after": after, "level": level, "limit": limit, "since": since, "text": text, "until": until, "wait": wait}, returns="models.LogPage")
        return answer

    async def read_metrics(self) -> str:
        """`GET /metrics`: Metrics in the text format of Prometheus."""
        return await self._text("GET", "/metrics")

    async def read_node(self, id: str) -> models.NodeOutput:
        """`GET /api/v1/nodes/{id}`: A node."""
        answer: models.NodeOutput = await self._json("GET", f"/api/v1/nodes/{self._part(id)}", returns="models.NodeOutput")
        return answer

    async def read_readiness(self) -> str:
        """`GET /readyz`: Readiness: this broker leads, and the store commits."""
        return await self._text("GET", "/readyz")

    async def read_run(self, id: str) -> models.RunOutput:
        """`GET /api/v1/runs/{id}`: A run."""
        answer: models.RunOutput = await self._json("GET", f"/api/v1/runs/{self._part(id)}", returns="models.RunOutput")
        return answer

    async def read_run_status(self, id: str) -> list[models.JobStatusOutput]:
        """`GET /api/v1/runs/{id}/status`: The statistics of each node for a run. The first row is the total and has no node."""
        answer: list[models.JobStatusOutput] = await self._json("GET", f"/api/v1/runs/{self._part(id)}/status", returns="list[models.JobStatusOutput]")
        return answer

    async def read_series(self, *, from_: datetime | None = None, to: datetime | None = None) -> models.SeriesOutput:
        """`GET /api/v1/series`: What the brokers did in a period of the last year, in steps of equal length: minutes if the period
        began within the last day, quarters of an hour within the last thirty days, else quarters of a day.
        Sums: `runs.*` and `fires.*` by outcome, `requests.*`, `bytes`, `errors.*` by kind. Durations in
        milliseconds, as percentiles rounded up to the bound of a bucket: `lateness.*` from the scheduled time
        to the run, `delay.*` from there to the order to a worker, `answer.*` of sites. Means with `.min` and
        `.max` of what was observed every ten seconds: `requests.waiting`, `nodes.online`, `workers.online`,
        `store.waiting`; and of what was counted once a minute: `runs.running`, `runs.waiting`.
        """
        answer: models.SeriesOutput = await self._json("GET", "/api/v1/series", query={"from": from_, "to": to}, returns="models.SeriesOutput")
        return answer

    async def read_worker(self, id: str) -> models.WorkerOutput:
        """`GET /api/v1/workers/{id}`: A worker."""
        answer: models.WorkerOutput = await self._json("GET", f"/api/v1/workers/{self._part(id)}", returns="models.WorkerOutput")
        return answer

    async def read_worker_work(self, id: str) -> models.WorkerWorkOutput:
        """`GET /api/v1/workers/{id}/work`: What a worker did in each of the last minutes, six hours at most, since it connected. The lists are
        empty if it is not connected.
        """
        answer: models.WorkerWorkOutput = await self._json("GET", f"/api/v1/workers/{self._part(id)}/work", returns="models.WorkerWorkOutput")
        return answer

    async def redrive_job(self, id: str, body: models.RedriveJobInput | Mapping[str, Any] | None = None) -> models.RedriveOutput:
        """`POST /api/v1/jobs/{id}/redrive`: Repeats the dead runs of a job: those that failed for good and that were not repeated yet."""
        answer: models.RedriveOutput = await self._json("POST", f"/api/v1/jobs/{self._part(id)}/redrive", body=body, returns="models.RedriveOutput")
        return answer

    async def redrive_runs(self, body: models.RedriveInput | Mapping[str, Any] | None = None) -> models.RedrivenRuns:
        """`POST /api/v1/runs/redrive`: Repeats dead runs of one or more jobs: runs that failed for good and that no other run repeats."""
        answer: models.RedrivenRuns = await self._json("POST", "/api/v1/runs/redrive", body=body, returns="models.RedrivenRuns")
        return answer

    async def register_worker(self, body: models.WorkerInput | Mapping[str, Any]) -> models.WorkerRegistered:
        """`POST /api/v1/workers`: Registers a worker without a socket, with the classes that it watches."""
        answer: models.WorkerRegistered = await self._json("POST", "/api/v1/workers", body=body, returns="models.WorkerRegistered")
        return answer

    async def release_site(self, name: str) -> models.SiteOutput:
        """`POST /api/v1/sites/{name}/release`: Ends the hold of a site, whatever its reason. Runs continue at once, at the site's pace."""
        answer: models.SiteOutput = await self._json("POST", f"/api/v1/sites/{self._part(name)}/release", returns="models.SiteOutput")
        return answer

    async def remove_node(self, id: str, *, force: bool | None = None) -> None:
        """`DELETE /api/v1/nodes/{id}`: Removes a node and its status history. A connected node is not removed unless `force` is set, which
        also shuts it down.
        """
        await self._none("DELETE", f"/api/v1/nodes/{self._part(id)}", query={"force": force})

    async def remove_package(self, sha256: str) -> None:
        """`DELETE /api/v1/packages/{sha256}`: Deletes a package that no job and no open run uses."""
        await self._none("DELETE", f"/api/v1/packages/{self._part(sha256)}")

    async def report_block(self, body: models.BlockReport | Mapping[str, Any]) -> models.Reported:
        """`POST /node/block`: A node reports the result of a block. The response comes when the report is on disk."""
        answer: models.Reported = await self._json("POST", "/node/block", body=body, returns="models.Reported")
        return answer

    async def report_tasks(self, id: str, body: Sequence[models.TaskReport | Mapping[str, Any]]) -> list[models.SettledTask]:
        """`POST /api/v1/workers/{id}/reports`: Task reports of a worker without a socket. The response comes when the final reports are on disk."""
        answer: list[models.SettledTask] = await self._json("POST", f"/api/v1/workers/{self._part(id)}/reports", body=body, returns="list[models.SettledTask]")
        return answer

    async def requeue_requests(self, id: str, body: models.RequeueInput | Mapping[str, Any] | None = None) -> models.Requeued:
        """`POST /api/v1/runs/{id}/requests/requeue`: Queues failed requests of a block run again, each at most once. Each repetition is a new request and
        counts as one. If the run is over, a new run of its job begins with them instead of its first
        requests.
        """
        answer: models.Requeued = await self._json("POST", f"/api/v1/runs/{self._part(id)}/requests/requeue", body=body, returns="models.Requeued")
        return answer

    async def restore_job(self, id: str) -> models.JobOutput:
        """`POST /api/v1/jobs/{id}/restore`: Restores a deleted job. It is disabled afterwards."""
        answer: models.JobOutput = await self._json("POST", f"/api/v1/jobs/{self._part(id)}/restore", returns="models.JobOutput")
        return answer

    async def resume_run(self, id: str) -> models.RunOutput:
        """`POST /api/v1/runs/{id}/resume`: Resumes a paused block run: it dispatches blocks again."""
        answer: models.RunOutput = await self._json("POST", f"/api/v1/runs/{self._part(id)}/resume", returns="models.RunOutput")
        return answer

    async def retry_run(self, id: str) -> models.RunOutput:
        """`POST /api/v1/runs/{id}/retry`: Repeats a run, as a new run."""
        answer: models.RunOutput = await self._json("POST", f"/api/v1/runs/{self._part(id)}/retry", returns="models.RunOutput")
        return answer

    async def revoke_token(self, name: str) -> None:
        """`DELETE /api/v1/tokens/{name}`: Revokes a token. What was opened with it, such as WebSockets and waiting calls, ends at once; at a
        standby within about a second.
        """
        await self._none("DELETE", f"/api/v1/tokens/{self._part(name)}")

    async def start_returned(self, id: str, body: models.StartReturned | Mapping[str, Any] | None = None) -> None:
        """`POST /api/v1/runs/{id}/start-returned`: A worker reports that it pushed the first requests of a run, or that it failed to."""
        await self._none("POST", f"/api/v1/runs/{self._part(id)}/start-returned", body=body)

    async def stop_run(self, id: str) -> models.RunOutput:
        """`POST /api/v1/runs/{id}/stop`: Stops a run. Programs get a stop request, and are killed after their grace period; until then the
        response shows the current state.
        """
        answer: models.RunOutput = await self._json("POST", f"/api/v1/runs/{self._part(id)}/stop", returns="models.RunOutput")
        return answer

    async def test_alert(self, id: str) -> models.AlertTestOutput:
        """`POST /api/v1/alerts/{id}/test`: Sends a test event at once and returns the result."""
        answer: models.AlertTestOutput = await self._json("POST", f"/api/v1/alerts/{self._part(id)}/test", returns="models.AlertTestOutput")
        return answer

    async def trigger_job(self, id: str, body: models.TriggerInput | Mapping[str, Any] | None = None) -> models.RunOutput:
        """`POST /api/v1/jobs/{id}/trigger`: Triggers a job. Calls with the same `fireTime` or `Idempotency-Key` make one run."""
        answer: models.RunOutput = await self._json("POST", f"/api/v1/jobs/{self._part(id)}/trigger", body=body, returns="models.RunOutput")
        return answer

    async def trigger_job_batch(self, id: str, body: Sequence[models.TriggerInput | Mapping[str, Any]]) -> list[models.TriggeredOutput]:
        """`POST /api/v1/jobs/{id}/trigger/batch`: Triggers a job up to 1,000 times, each with its own arguments and result. All accepted triggers are on
        disk when the response comes.
        """
        answer: list[models.TriggeredOutput] = await self._json("POST", f"/api/v1/jobs/{self._part(id)}/trigger/batch", body=body, returns="list[models.TriggeredOutput]")
        return answer

    async def update_alert(self, id: str, body: models.AlertInput | models.AlertOutput | Mapping[str, Any]) -> models.AlertOutput:
        """`PUT /api/v1/alerts/{id}`: Changes a channel. What is left out stays as it is."""
        answer: models.AlertOutput = await self._json("PUT", f"/api/v1/alerts/{self._part(id)}", body=body, returns="models.AlertOutput")
        return answer

    async def update_group(self, id: str, body: models.GroupInput | models.GroupOutput | Mapping[str, Any]) -> models.GroupOutput:
        """`PUT /api/v1/groups/{id}`: Changes a group. Its jobs refer to it by the new name from then on."""
        answer: models.GroupOutput = await self._json("PUT", f"/api/v1/groups/{self._part(id)}", body=body, returns="models.GroupOutput")
        return answer

    async def update_job(self, id: str, body: models.JobInput | models.JobOutput | Mapping[str, Any]) -> models.JobOutput:
        """`PUT /api/v1/jobs/{id}`: Changes a job. What is left out stays as it is; `If-Match` or `version` names the version that was
        read.
        """
        answer: models.JobOutput = await self._json("PUT", f"/api/v1/jobs/{self._part(id)}", body=body, returns="models.JobOutput")
        return answer

    async def worker_heartbeat(self, id: str, body: models.HandsInput | Mapping[str, Any]) -> None:
        """`POST /api/v1/workers/{id}/heartbeat`: Heartbeat of a worker without a socket, with its current tasks: their leases are renewed."""
        await self._none("POST", f"/api/v1/workers/{self._part(id)}/heartbeat", body=body)
