# Made by tools/generate.py from the OpenAPI document of the broker. Do not edit.
"""What the REST API takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, Union

from ._model import Model

# The run ends after which a successor begins.
AfterEnd: TypeAlias = Literal["success", "failure", "always"]

# The present role of a broker.
BrokerRole: TypeAlias = Literal["leader", "standby", "gone"]

# Where messages are sent.
ChannelKind: TypeAlias = Literal["webhook", "mail"]

# The two cookie modes of the seeds.
CookieMode: TypeAlias = Literal["initial", "fixed"]

# What the delay at a site comes from.
DelayBy: TypeAlias = Literal["default", "job", "operator", "robots", "slowAnswers"]

# How weekday numbers and two restricted day fields are interpreted.
Dialect: TypeAlias = Literal["crontab", "quartz"]

# The closed list of reasons.
FetchErrorKind: TypeAlias = Literal["dns", "connect", "tls", "timeout", "too-large", "body", "redirect", "protocol", "change-ip", "invalid", "refused", "robots", "discarded", "not-reported", "node-lost", "block", "other"]

# What happens to a fire whose local time occurs twice.
FoldRule: TypeAlias = Literal["first", "second", "both"]

# What happens to a fire whose local time is skipped by the clock.
GapRule: TypeAlias = Literal["skip", "after", "shift"]

# The body of an import. It is first read as a plain value, so that an error can name its position.
ImportBody: TypeAlias = Union["list[JobInput]", "ImportFile"]

# What kind of work a job is.
JobKind: TypeAlias = Literal["block", "application", "callback", "task"]

# Whether a run of a job is open.
JobStatus: TypeAlias = Literal["idle", "waiting", "running"]

# A kind of job by name or, as in 002, by number.
JobTypeInput: TypeAlias = int | str

# The level of a line, by name or by number.
LogLevel: TypeAlias = int | str

# See [`Misfire`].
MisfirePolicy: TypeAlias = Literal["once", "skip", "all"]

# What happens to a run without a suitable worker.
NoWorker: TypeAlias = Literal["fail", "wait"]

# A fire while another run of its job is not over.
Overlap: TypeAlias = Literal["skip", "queueOne", "queueAll", "replace", "allow"]

# One block, or a list of blocks if `max` was given.
Polled: TypeAlias = Union["FinishedBlock", "dict[str, Any]"]

# Keys and text values. Key lookup ignores case and underscores (`NODE_COUNT` is `NodeCount`).
Properties: TypeAlias = dict[str, str]

# Requests: a plain array, or a member of an object.
PushInput: TypeAlias = Union["list[RequestInput]", "dict[str, Any]"]

# The states by which requests can be listed.
RequestState: TypeAlias = Literal["failed"]

# State of a run.
RunState: TypeAlias = Literal["pending", "scheduled", "running", "failed", "success", "stopped"]

# Which worker gets a task, among the suitable workers with a free slot.
Strategy: TypeAlias = Literal["roundRobin", "random", "leastLoaded", "leastRecentlyUsed", "hash", "sticky", "failover", "broadcast", "shard"]

# The state of an attempt.
TaskState: TypeAlias = Literal["accepted", "refused", "running", "success", "failed", "cancelled"]

# From the broker to a worker.
ToWorker: TypeAlias = dict[str, Any]

# What a run that has not begun waits for.
WaitsFor: TypeAlias = Literal["queue", "schedule", "retry", "worker", "node"]

# The kind of a warning.
WarningKind: TypeAlias = Literal["failed-job", "silent-job", "missed-job", "late-job", "waiting-run", "held-site", "lost-node", "disk"]

# Why a site may not get requests at present.
Why: TypeAlias = Literal["delay", "slowAnswers", "connections", "retryAfter", "tooManyRequests", "timeouts", "refused", "serverErrors", "dns", "tls", "operator"]

# The operator's admin state for a worker. It survives disconnects of the worker and restarts of the broker.
WorkerState: TypeAlias = Literal["enabled", "disabled", "draining", "kicked"]


@dataclass(kw_only=True)
class AckCall(Model):
    """The body of an acknowledgement: completed blocks, and their follow-up requests."""

    #: The blocks.
    blocks: list[str] | None = None
    #: The follow-up requests.
    requests: list[RequestInput] | None = None


@dataclass(kw_only=True)
class ActorDetail(Model):
    """An actor with its history."""

    #: Milliseconds since its last start.
    age: int
    #: Why it was restarted, the newest first; at most 20.
    crashes: list[CrashOutput]
    #: How many messages waited when one was handled, that one included, since the actor was created.
    depths: list[DepthOutput]
    #: registry, dispatcher, run, node, worker, session, persistence …
    kind: str
    #: Messages by type, the most frequent first.
    messages: list[MessagesOutput]
    #: Messages handled, over all incarnations.
    messages_handled: int
    #: Its name.
    name: str
    #: Number of waiting messages.
    queue_depth: int
    #: The last messages, the newest first; at most 10.
    recent: list[RecentOutput]
    #: Number of restarts.
    restarts: int
    #: running, restarting, stopped …
    state: str
    #: Work that waits: of a run of a block job, requests without a result.
    waiting: int
    #: The broker that has it, if it is not the leader.
    broker_id: str | None = None
    #: The name for people of the job, the node or the worker that it belongs to.
    label: str | None = None
    #: The last error.
    last_error: str | None = None
    #: The actor that supervises it; absent for the root.
    parent: str | None = None
    #: Microseconds for a message, on average: for so long it occupies its thread. Absent if it is not measured.
    time_per_message: float | None = None


@dataclass(kw_only=True)
class ActorOutput(Model):
    """An actor."""

    #: Milliseconds since its last start.
    age: int
    #: registry, dispatcher, run, node, worker, session, persistence …
    kind: str
    #: Messages handled, over all incarnations.
    messages_handled: int
    #: Its name.
    name: str
    #: Number of waiting messages.
    queue_depth: int
    #: Number of restarts.
    restarts: int
    #: running, restarting, stopped …
    state: str
    #: The broker that has it, if it is not the leader.
    broker_id: str | None = None
    #: The name for people of the job, the node or the worker that it belongs to.
    label: str | None = None
    #: The last error.
    last_error: str | None = None
    #: The actor that supervises it; absent for the root.
    parent: str | None = None
    #: Microseconds for a message, on average: for so long it occupies its thread. Absent if it is not measured.
    time_per_message: float | None = None


@dataclass(kw_only=True)
class AlertDeliveryOutput(Model):
    """The delivery of an event to one channel."""

    #: Attempts so far.
    attempts: int
    #: The channel.
    channel_id: str
    #: Number of events in its message.
    count: int
    #: waiting, sending, done, failed (given up), merged (sent with another event).
    state: str
    #: When it was done or given up.
    finish_time: datetime | None = None
    #: The last error.
    last_error: str | None = None
    #: The event whose message includes this one.
    merged_into: int | None = None
    #: The time of the next attempt, while it waits.
    next_at: datetime | None = None


@dataclass(kw_only=True)
class AlertEventOutput(Model):
    """An event, and its deliveries."""

    #: When it happened.
    at: datetime
    #: Its deliveries to the channels.
    deliveries: list[AlertDeliveryOutput]
    #: failed, missed, late, silent, recovered, disabled, test.
    event: str
    #: The number of the event.
    id: int
    #: Its group.
    group: str | None = None
    #: The job.
    job_id: str | None = None
    #: Its name.
    job_name: str | None = None
    #: The reason.
    reason: str | None = None
    #: The run.
    run_id: str | None = None


@dataclass(kw_only=True)
class AlertEventOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[AlertEventOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class AlertInput(Model):
    """A channel to create or change; in a change, absent members keep their values."""

    #: Which events it receives.
    filter: Filter | None = None
    #: Whether it receives events.
    is_enabled: bool | None = None
    #: webhook or mail.
    kind: ChannelKind | None = None
    #: 1 to 50 characters, unique.
    name: str | None = None
    #: The key that signs what is sent to a webhook; at most 500 bytes. Empty: the stored one stays.
    secret: str | None = None
    #: The URL of a webhook, or a mail address.
    target: str | None = None
    #: The version that the change is based on.
    version: int | None = None


@dataclass(kw_only=True)
class AlertOutput(Model):
    """A channel."""

    #: When it was created.
    creation_time: datetime
    #: Which events it receives.
    filter: Filter
    #: Whether messages are signed. The secret itself is never shown.
    has_secret: bool
    #: Its id.
    id: str
    #: Whether it receives events.
    is_enabled: bool
    #: webhook or mail.
    kind: ChannelKind
    #: Its name.
    name: str
    #: The id as a number, for clients that need 64 bits.
    number: str
    #: The URL of a webhook, or a mail address.
    target: str
    #: When it was last changed.
    update_time: datetime
    #: The version: increases with each change.
    version: int
    #: Who created it.
    create_by: str | None = None
    #: Who changed it last.
    update_by: str | None = None


@dataclass(kw_only=True)
class AlertTestOutput(Model):
    """The result of a test."""

    #: The id of the test's event.
    id: int
    #: Whether the receiver accepted it.
    ok: bool
    #: Duration, in milliseconds.
    time: int
    #: What went wrong.
    error: str | None = None


@dataclass(kw_only=True)
class AskInput(Model):
    """The next fire of the job, set by a run. Exactly one of the two members."""

    #: At this time; a past time means in 100 ms.
    at: datetime | None = None
    #: This many milliseconds from now.
    in_: int | None = None


@dataclass(kw_only=True)
class AttemptOutput(Model):
    """An attempt of a run that had more than one."""

    #: The attempt, from 1.
    attempt: int
    #: The instance, from 0; 0 if the run has only one.
    instance: int
    #: How it ended; of the last one, its state when it began or ended.
    state: RunState
    #: When it ended; absent: it is the last one, and has not ended.
    finish_time: datetime | None = None
    #: The node or worker that had it. Absent: none, or the broker itself sent the request.
    peer: str | None = None
    #: Its name, or the last digits of its id.
    peer_name: str | None = None
    #: Why it ended.
    reason: str | None = None
    #: When it began; absent: not known, because the broker restarted during the attempt.
    start_time: datetime | None = None


@dataclass(kw_only=True)
class AttemptOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[AttemptOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class AuditOutput(Model):
    """A call that changes something."""

    #: When it was made.
    at: datetime
    #: Its id: the order of ids is that of time.
    id: str
    #: The kind of the object: `job`.
    kind: str
    #: The operation, by its name in the OpenAPI document: `updateJob`.
    operation: str
    #: The address that the connection came from.
    address: str | None = None
    #: The name of the token, or of its role. Absent: the broker needs no token.
    caller: str | None = None
    #: The caller's address according to a proxy or a standby (`X-Forwarded-For`). The broker does not check it.
    forwarded_for: str | None = None
    #: The names of the members in the body, without their values.
    members: str | None = None
    #: The object: as the call named it, or what the call created.
    object: str | None = None
    #: The role of the token.
    role: str | None = None
    #: The status of the answer. Absent: the call has not been answered yet, or the broker ended before, so that
    #: its outcome is not known.
    status: int | None = None


@dataclass(kw_only=True)
class AuditOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[AuditOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class BackfillFire(Model):
    """One scheduled time of a backfill."""

    #: The scheduled time.
    planned_at: datetime
    #: Its run.
    identity: str | None = None


@dataclass(kw_only=True)
class BackfillInput(Model):
    """A past range whose missing runs are created."""

    #: The first time of the range.
    from_: datetime
    #: The last time of the range.
    to: datetime
    #: Only list the times.
    dry_run: bool | None = None
    #: Maximum number of runs, 1 to 1,000; 100 if absent.
    limit: int | None = None


@dataclass(kw_only=True)
class BackfillOutput(Model):
    """The result of a backfill."""

    #: Number of scheduled times in the range that already had a run.
    already: int
    #: The scheduled times, and their new runs (none in a dry run).
    fires: list[BackfillFire]
    #: Whether the range has more than the limit.
    more: bool


@dataclass(kw_only=True)
class Blackout(Model):
    """A time at which a job does not run: between two times (`from`, `to`), on whole days (`dates`), or every
    day or on some weekdays between two times of the day (`start`, `end`, `days`). Days and times are in the
    job's zone.
    """

    #: Whole days, as `2026-12-25`.
    dates: list[str] | None = None
    #: The weekdays on which it begins, as `MON`; all if the list is empty.
    days: list[str] | None = None
    #: The time of the day at which it ends; if before `start`, on the next day.
    end: str | None = None
    #: The first time that is covered.
    from_: datetime | None = None
    #: Its name in the ledger.
    name: str | None = None
    #: A time of the day, as `22:00`.
    start: str | None = None
    #: The first time that is no longer covered.
    to: datetime | None = None


@dataclass(kw_only=True)
class BlockCounts(Model):
    """Blocks by state."""

    #: Completed, but not yet acknowledged by a worker.
    answered: int
    #: Waiting for a node.
    ready: int
    #: Total.
    total: int
    #: At a node; absent where it is unknown, and then they count as ready.
    using: int | None = None


@dataclass(kw_only=True)
class BlockForNode(Model):
    """A block as it is sent to a node: the seeds' *BlockDto*."""

    #: The dispatched attempt, from 1. Returned with the results.
    attempt: int
    #: Its id.
    block_id: str
    #: When the cookies are sent.
    cookie_mode: CookieMode
    #: The run's epoch. Returned with the results.
    epoch: int
    #: Its run.
    identity: str
    #: Maximum size of a body in bytes, after decompression.
    max_body: int
    #: Maximum number of redirects to follow; 0 returns the redirect itself.
    max_redirects: int
    #: Settings for the whole site.
    site: SiteSettings
    #: Milliseconds between the starts of two requests of this run to one host on one node; 0 for none.
    sleep_time: int
    #: Concurrent downloads within one block.
    thread_num: int
    #: Timeout of one try in milliseconds, including the body.
    timeout: int
    #: A regular expression; if a body matches it, the node changes its IP address and retries.
    change_ip_pattern: str | None = None
    #: A `Cookie` header: `name=value; name=value`.
    cookies: str | None = None
    #: Whether another node may succeed where this one finds no way to a site: then it gives such requests back
    #: instead of reporting their failure. See [`FetchErrorKind::is_of_node`].
    elsewhere: bool | None = None
    #: Whether the broker holds sites without a pace: requests that were answered with 429, or 503 with `Retry-
    #: After`, are given back with all others to their origin, and reported at once. See [`SiteNews::paused`].
    holds: bool | None = None
    #: Number of earlier attempts that were lost, so that its requests may have been sent. Absent: an older
    #: broker, whose `attempt` also counts those that gave the block back.
    lost: int | None = None
    #: The pace limit of the requests' site. Without it only the settings limit the requests.
    pace: Pace | None = None
    #: Whether the node may report in parts: some requests now, others later. See [`BlockReport::part`].
    parts: bool | None = None
    #: The requests, a JSON array; absent in a binary frame.
    requests: list[Request] | None = None
    #: Retries after the first try; `None`: the agent's own setting.
    retry_download: int | None = None
    #: Where the run began: the origins of its first requests. `None`: an older broker, which does not send it.
    start_origins: list[str] | None = None
    #: The span of this attempt, the value of a `traceparent` header (W3C Trace Context), if the broker sends
    #: spans to a collector.
    traceparent: str | None = None


@dataclass(kw_only=True)
class BlockOutput(Model):
    """A block."""

    #: Whether a worker has acknowledged its results.
    acknowledged: bool
    #: Dispatches so far.
    attempt: int
    #: Its id.
    block_id: str
    #: When it was created.
    creation_time: datetime
    #: Failed requests.
    error: int
    #: Its run.
    identity: str
    #: Number of requests in it.
    requests: int
    #: ready, using, success, failed, retry.
    state: str
    #: Successful requests.
    success: int
    #: Why it could not be downloaded completely.
    exception: str | None = None
    #: When its results arrived.
    finish_time: datetime | None = None
    #: When its lease expires, unless its node reports.
    lease_until: datetime | None = None
    #: The node that has it or had it last.
    node_id: str | None = None
    #: Its name, or the last digits of its id.
    node_name: str | None = None


@dataclass(kw_only=True)
class BlockOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[BlockOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class BlockReport(Model):
    """The body of `POST /node/block` as JSON: the seeds' *BlockResponse*."""

    #: The block.
    block_id: str
    #: Its run.
    identity: str
    #: The node that reports.
    node_id: str
    #: The attempt that came with the block; absent: the current one.
    attempt: int | None = None
    #: Requests that the node gives back without a result.
    back: list[GivenBack] | None = None
    #: The epoch that came with the block; absent: the current one.
    epoch: int | None = None
    #: Why the block could not be downloaded completely.
    exception: str | None = None
    #: Whether more reports follow: the requests that are missing here stay with the node.
    part: bool | None = None
    #: The requests, each with its result.
    results: list[RequestReport] | None = None
    #: The node's findings about the site of the block: see [`SiteNews`].
    site: SiteNews | None = None


@dataclass(kw_only=True)
class BrokerOutput(Model):
    """A broker process."""

    #: Whether it may execute runs: the leader may, and with PostgreSQL each standby whose runs were not taken
    #: back, until it is drained.
    executes: bool
    #: Its id, a new one at each start.
    id: str
    #: Whether it sent this response.
    is_this: bool
    #: When it was seen last, by its own clock.
    last_seen: datetime
    #: Its present role.
    role: BrokerRole
    #: Number of open runs that it executes, or will when they begin.
    runs: int
    #: When it started, by its own clock.
    started_at: datetime
    #: The URL for clients.
    url: str
    #: The program's version.
    version: str
    #: Since when it leads, by its own clock.
    leads_since: datetime | None = None
    #: The leader's term: increases with each change of the leader.
    term: int | None = None


@dataclass(kw_only=True)
class Callback(Model):
    """The request of a callback job. URL, header values and body may hold placeholders: `{runId}`, `{jobId}`,
    `{jobName}`, `{fireTime}`, `{attempt}`, `{traceId}` and `{arguments}`.
    """

    #: An absolute http or https URL.
    url: str
    #: The body, sent after its placeholders are filled in; `application/json` unless a header sets another
    #: content type.
    body: str | None = None
    #: Statuses that count as success; 200 to 299 if the list is empty.
    expect: list[int] | None = None
    #: Request headers.
    headers: dict[str, str] | None = None
    #: GET, POST, PUT, PATCH, DELETE or HEAD. POST if there is a body, else GET.
    method: str | None = None
    #: Signs each request: header `Webloom-Signature: t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`. Never
    #: shown.
    secret: str | None = None


@dataclass(kw_only=True)
class CallbackInput(Model):
    """The request of a callback job. URL, header values and body may hold placeholders: `{runId}`, `{jobId}`,
    `{jobName}`, `{fireTime}`, `{attempt}`, `{traceId}` and `{arguments}`.
    """

    #: The body, sent after its placeholders are filled in; `application/json` unless a header sets another
    #: content type.
    body: str | None = None
    #: Statuses that count as success; 200 to 299 if the list is empty.
    expect: list[int] | None = None
    #: Request headers.
    headers: dict[str, str] | None = None
    #: GET, POST, PUT, PATCH, DELETE or HEAD. POST if there is a body, else GET.
    method: str | None = None
    #: Signs each request: header `Webloom-Signature: t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`. Never
    #: shown.
    secret: str | None = None
    #: An absolute http or https URL.
    url: str | None = None


@dataclass(kw_only=True)
class Channels(Model):
    """All channels."""

    #: Each of them.
    items: list[AlertOutput]


@dataclass(kw_only=True)
class Counters(Model):
    """Requests of a run by result. `left = total - success - error` always holds."""

    #: Answered with a status of 400 or above, or not answered.
    error: int
    #: Not yet downloaded.
    left: int
    #: Downloaded completely with a status below 400.
    success: int
    #: Accepted by the run.
    total: int


@dataclass(kw_only=True)
class CrashOutput(Model):
    """The end of an actor."""

    #: When.
    at: datetime
    #: The text of the panic, or the error.
    reason: str


@dataclass(kw_only=True)
class CrawlingOutput(Model):
    """How a block run treats sites. The settings were read when the run was created: later changes of its job do
    not change them.
    """

    #: Maximum number of redirects in a chain.
    max_redirects: int
    #: Who requests the targets of redirects: `request` (the run) or `follow` (the node).
    redirects: str
    #: `obey`, `ignore`, or `public`: robots.txt is obeyed at public hosts only.
    robots: str
    #: What counts as one site: host, domain or ip.
    site_by: str
    #: Milliseconds between two requests to a site; absent: the default.
    delay: int | None = None
    #: Maximum depth of a request.
    depth_limit: int | None = None
    #: Hosts that get the job's headers and cookies; absent: those where the run began.
    hosts: list[str] | None = None
    #: Maximum number of bytes of bodies.
    max_bytes: int | None = None
    #: Maximum number of requests to one site.
    max_per_site: int | None = None
    #: Maximum number of requests.
    max_requests: int | None = None
    #: Concurrent requests to a site; absent: the default.
    per_site: int | None = None
    #: The `User-Agent`; absent: that of the agents.
    user_agent: str | None = None


@dataclass(kw_only=True)
class DepthOutput(Model):
    """How often this many messages waited."""

    #: How often.
    count: int
    #: At most this many messages, and more than in the line before; absent in the last line, which has all
    #: others.
    up_to: int | None = None


@dataclass(kw_only=True)
class DisableInput(Model):
    """Why a job is disabled, and what to do with its runs."""

    #: `drain` (default): runs in progress continue. `stop`: they are stopped.
    mode: str | None = None
    #: A reason for people.
    reason: str | None = None


@dataclass(kw_only=True)
class DiscardInput(Model):
    """Which pending requests of a run are to be discarded. At least one condition, or `all`."""

    #: Without a condition: all that are pending.
    all: bool | None = None
    #: Only count them.
    dry_run: bool | None = None
    #: At most this many, 1 to 10,000; 1,000 if absent.
    limit: int | None = None
    #: Only those of at most this depth.
    max_depth: int | None = None
    #: Only those of at least this depth.
    min_depth: int | None = None
    #: Only those to this host or site.
    site: str | None = None
    #: Only those whose URL has this part; `*` stands for any characters, `$` at the end for the end of the URL.
    url: str | None = None


@dataclass(kw_only=True)
class Discarded(Model):
    """What became of pending requests that were to be discarded."""

    #: … that are discarded. The others are at a node.
    discarded: int
    #: Requests that were found.
    found: int
    #: There are more than the limit, or than one call looks at: call again.
    more: bool


@dataclass(kw_only=True)
class ExportedJob(Model):
    """A job in a file: the data that a team maintains, without what the broker adds."""

    #: Whether it is enabled.
    is_enabled: bool
    #: block, task, application or callback.
    job_type: JobKind
    #: Its name, which identifies it at an import.
    name: str
    #: Jobs with a higher priority go first.
    priority: int
    #: All other properties, by key.
    properties: dict[str, str]
    #: The request of a callback job. The secret is empty here: an import keeps the stored one.
    callback: Callback | None = None
    #: A text for people.
    description: str | None = None
    #: Why it is disabled.
    disabled_reason: str | None = None
    #: Its group.
    group: str | None = None
    #: Its rules.
    policies: Policies | None = None
    #: Its schedule.
    schedule: Schedule | None = None
    #: Jobs that begin when a run of this one ends.
    successors: list[Successor] | None = None
    #: The task of a task job.
    task: TaskSettings | None = None


@dataclass(kw_only=True)
class FailedRequest(Model):
    """A failed request of a run."""

    #: Its block.
    block_id: str
    #: The request.
    request_id: str
    #: The HTTP status; 0 if there was no response.
    status: int
    #: Number of tries.
    tries: int
    #: Its URL as it was pushed.
    url: str
    #: When its block was reported.
    finish_time: datetime | None = None
    #: Why there is no response, or no complete one; absent: the site responded with the status.
    kind: FetchErrorKind | None = None
    #: The same as a text for people.
    message: str | None = None
    #: The method; absent: GET.
    method: str | None = None
    #: The node that reported it; absent if the broker itself did.
    node_id: str | None = None
    #: The name of the node.
    node_name: str | None = None
    #: The id under which it was queued again.
    requeued_as: str | None = None
    #: The run in which it was queued again; absent: its own.
    requeued_in: str | None = None


@dataclass(kw_only=True)
class FailedRequestPage(Model):
    """A page of a list."""

    #: The items.
    items: list[FailedRequest]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class FailureCount(Model):
    """The failed requests of one kind."""

    #: Number of failed requests.
    failed: int
    #: Number of them that were queued again.
    requeued: int
    #: Why there is no response, or no complete one; absent: the site responded with the status.
    kind: FetchErrorKind | None = None
    #: The HTTP status, if there is no kind.
    status: int | None = None


@dataclass(kw_only=True)
class FailureCounts(Model):
    """The failed requests of a run, counted."""

    #: One row for each kind, and for each status of complete responses; the largest first.
    items: list[FailureCount]
    #: Whether there are more failures than were counted: one call reads a limited number of blocks.
    more: bool


@dataclass(kw_only=True)
class FetchError(Model):
    """Why a request got no response, or no complete one."""

    #: The kind, from a closed list.
    kind: FetchErrorKind
    #: A text for people.
    message: str
    #: Whether another try, later or elsewhere, may succeed.
    retryable: bool | None = None


@dataclass(kw_only=True)
class Filter(Model):
    """The events that a channel receives. An empty list matches everything."""

    #: failed, missed, late, silent, recovered, disabled.
    events: list[str] | None = None
    #: Groups, by their names.
    groups: list[str] | None = None
    #: Jobs, by their ids or their names.
    jobs: list[str] | None = None


@dataclass(kw_only=True)
class FinishedBlock(Model):
    """A finished block as JSON."""

    #: The block.
    block_id: str
    #: Its run.
    identity: str
    #: Its requests, each with its response.
    results: list[Outcome]
    #: `success`, or `failed` if the block failed as a whole.
    state: str
    #: Why it could not be downloaded completely.
    exception: str | None = None


@dataclass(kw_only=True)
class FinishedBlockPage(Model):
    """A page of a list."""

    #: The items.
    items: list[FinishedBlock]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class FireOutput(Model):
    """A row of the ledger of fires."""

    #: When it was decided.
    creation_time: datetime
    #: Number of scheduled times in the row: 1, except for combined missed ones.
    instants: int
    #: The job.
    job_id: str
    #: plan, asked, silence, outside, backfill.
    kind: str
    #: The scheduled time, or the first of several.
    planned_at: datetime
    #: fired, skipped, missed, merged.
    verdict: str
    #: The version of the job at the decision.
    version: int
    #: The run that it made, or was merged into.
    identity: str | None = None
    #: The last of several.
    planned_until: datetime | None = None
    #: The rule as a text for people.
    reason: str | None = None
    #: The rule that decided it.
    rule: str | None = None


@dataclass(kw_only=True)
class FireOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[FireOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class GivenBack(Model):
    """A request that a node gives back without a result. It returns to the queue of its run."""

    #: The request.
    request_id: str
    #: The last error, if this node tried it.
    error: FetchError | None = None
    #: The HTTP status of the last try; absent: there was no response.
    status: int | None = None
    #: Duration of the last try, in milliseconds.
    time: int | None = None
    #: Number of tries so far, including those of earlier nodes.
    tries: int | None = None


@dataclass(kw_only=True)
class GroupInput(Model):
    """A group to create or change."""

    #: At most 500 characters.
    description: str | None = None
    #: At most 50 characters, unique.
    name: str | None = None


@dataclass(kw_only=True)
class GroupOutput(Model):
    """A named group of jobs and nodes."""

    #: When it was created.
    creation_time: datetime
    #: Its id.
    id: str
    #: Number of its jobs.
    jobs: int
    #: Its name.
    name: str
    #: Number of nodes that report this group.
    nodes: int
    #: The id as a number, for clients that need 64 bits.
    number: str
    #: When it was last changed.
    update_time: datetime
    #: Who created it.
    create_by: str | None = None
    #: A text for people.
    description: str | None = None
    #: Who changed it last.
    update_by: str | None = None


@dataclass(kw_only=True)
class GroupOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[GroupOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class GroupSwitched(Model):
    """The result of enabling or disabling the jobs of a group."""

    #: Number of changed jobs.
    changed: int
    #: Number of its jobs.
    jobs: int


@dataclass(kw_only=True)
class HandsInput(Model):
    """The current tasks of a worker."""

    #: All of them.
    tasks: list[TaskRefInput]


@dataclass(kw_only=True)
class HeartbeatCall(Model):
    """The body of `POST /node/heartbeat`: a node without a socket sends its facts, and gets a block or nothing.
    The names of both revisions of the seeds are accepted, in camel or Pascal case.
    """

    #: The node.
    node_id: str
    #: Processor use, in percent of all processors.
    cpu: int | None = None
    #: Free memory, in MB.
    free_memory: int | None = None
    #: Its group.
    group: str | None = None
    #: The blocks in progress, and those whose results are not yet accepted. Absent: not reported.
    holding: list[Holding] | None = None
    #: The IP address that it reports; by default the address of the call.
    ip: str | None = None
    #: Total memory, in MB.
    memory: int | None = None
    #: A name for people; without one it keeps its present name.
    name: str | None = None
    #: Console or Web.
    node_type: str | None = None
    #: Its operating system.
    operating_system: str | None = None
    #: Number of running blocks and programs.
    process_count: int | None = None
    #: Number of processors.
    processor_count: int | None = None
    #: The running programs, and those whose end is not yet acknowledged. Absent: not reported.
    programs: list[ProgramRef] | None = None
    #: Number of `block` messages that came on this connection. The broker sends no block again that is still on
    #: its way. Absent: not counted.
    received: int | None = None
    #: Runs that it already works for: it gets no blocks of these.
    runnings: list[str] | None = None


@dataclass(kw_only=True)
class HeldOutput(Model):
    """A hold: no run starts a request to the site."""

    #: When it ends.
    until: datetime
    #: The reason; `operator`: an operator set it.
    why: Why
    #: The role of the operator; absent: no operator set it, or the broker has no tokens.
    by: str | None = None


@dataclass(kw_only=True)
class HoldInput(Model):
    """The length of a hold: exactly one of the two members."""

    #: For this many milliseconds, at most 49 days.
    for_: int | None = None
    #: Until this time, at most 49 days from now.
    until: datetime | None = None


@dataclass(kw_only=True)
class Holding(Model):
    """A block that a node holds."""

    #: The dispatched attempt.
    attempt: int
    #: The block.
    block_id: str
    #: The epoch of the dispatch.
    epoch: int
    #: The run.
    identity: str
    #: Whether all that is left of it waits for slow answers, so that it takes no place at the node.
    waits: bool | None = None


@dataclass(kw_only=True)
class HookAnswer(Model):
    """The answer to the caller of a hook."""

    #: The run.
    identity: str


@dataclass(kw_only=True)
class HookInput(Model):
    """A hook to create."""

    #: Its name, unique in the job: 1 to 50 letters, digits or one of `._@-`. Runs show it as `webhook:NAME`.
    name: str


@dataclass(kw_only=True)
class HookOutput(Model):
    """A hook, without its secret."""

    #: When it was created.
    creation_time: datetime
    #: Its id.
    id: str
    #: The job that it triggers.
    job_id: str
    #: Its name.
    name: str
    #: The path to call by POST.
    path: str
    #: Who created it.
    create_by: str | None = None


@dataclass(kw_only=True)
class HooksOutput(Model):
    """The hooks of a job."""

    #: Each of them.
    items: list[HookOutput]


@dataclass(kw_only=True)
class ImportFile(Model):

    #: Jobs.
    jobs: list[JobInput]


@dataclass(kw_only=True)
class ImportedJob(Model):
    """The result of an import for one job."""

    #: created, updated, unchanged.
    action: str
    #: Its name.
    name: str
    #: Its id; absent if a dry run would create it.
    id: str | None = None


@dataclass(kw_only=True)
class InstanceOutput(Model):
    """An instance of a run."""

    #: The attempt, from 1.
    attempt: int
    #: The instance, from 0. Its output lines have the sources `<instance>:stdout` and `<instance>:stderr`.
    instance: int
    #: Number of received output lines of a program, stored or not; 0 for a task.
    lines: int
    #: Its state: scheduled, running, success, failed, stopped.
    state: RunState
    #: Why it was asked to end.
    exit_reason: str | None = None
    #: When it ended.
    finish_time: datetime | None = None
    #: Its current or last node or worker.
    peer: str | None = None
    #: Its name, or the last digits of its id.
    peer_name: str | None = None
    #: The reason for its state.
    reason: str | None = None
    #: The result: for a program its exit code or signal, its times and its peak memory.
    result: Any = None
    #: When it began.
    start_time: datetime | None = None


@dataclass(kw_only=True)
class InstanceOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[InstanceOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class JobActivity(Model):
    """Statistics of the stored runs of a job."""

    #: Number of its runs.
    runs: int
    #: Whether it has an open run.
    status: JobStatus
    #: Average duration of its last successful runs in milliseconds: at most the last 100 of them.
    average_ms: int | None = None
    #: The newest run that has ended.
    last_run: LastRun | None = None
    #: The oldest run that has not ended: the one in progress, or the next one.
    open_run: str | None = None
    #: The worker of that run, or else of the last run.
    worker_id: str | None = None


@dataclass(kw_only=True)
class JobChange(Model):
    """A change of a job: who, when, and the new values."""

    #: created, updated, enabled, disabled, deleted, restored.
    action: str
    #: When it was made.
    at: datetime
    #: The number of the change, over all jobs.
    id: int
    #: The job after the change, without secrets.
    job: Any
    #: The job.
    job_id: str
    #: The new version.
    version: int
    #: The token's role, if tokens are in use; `broker` for the broker's own changes.
    by: str | None = None


@dataclass(kw_only=True)
class JobChangePage(Model):
    """A page of a list."""

    #: The items.
    items: list[JobChange]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class JobDataInput(Model):
    """Data to set for the next run of a job."""

    #: Any JSON, at most 256 KiB.
    data: Any


@dataclass(kw_only=True)
class JobDataOutput(Model):
    """The data that the last run of a job stored for the next one."""

    #: Any JSON.
    data: Any
    #: When it was stored.
    update_time: datetime
    #: The run that stored it; absent: it was set by hand.
    identity: str | None = None
    #: Who set it by hand: the role of a token, if tokens are in use.
    update_by: str | None = None


@dataclass(kw_only=True)
class JobInput(Model):
    """A job to create or change. Names of both revisions of the seeds are accepted."""

    #: 002's column: the class of a block job, the program of an application. Stored as a property.
    application: str | None = None
    #: 002's column. Stored as a property.
    arguments: str | None = None
    #: The request of a callback job.
    callback: CallbackInput | None = None
    #: Short form for the program of an application job and its arguments, as one line, without a shell. It makes
    #: the job an application job, and is stored as the properties `Application` and `Arguments`, with `MaxCpu`
    #: 101 if the job has no `MaxCpu`.
    command: str | None = None
    #: Short form of a schedule with one cron expression; empty: only triggers start it.
    cron: str | None = None
    #: A text for people.
    description: str | None = None
    #: Why it is disabled, if `isEnabled` is false.
    disabled_reason: str | None = None
    #: The name of its group, which is created if it does not exist. Empty: no group.
    group: str | None = None
    #: The id for a new job; by default the broker makes one.
    id: str | None = None
    #: Short form of a schedule with one interval, in milliseconds; 0: once, then disabled.
    interval: int | None = None
    #: Whether its schedule and triggers start it.
    is_enabled: bool | None = None
    #: `block`, `task`, `application` or `callback`; 002 numbers the first two from 0.
    job_type: JobTypeInput | None = None
    #: Unique among the jobs; required at creation.
    name: str | None = None
    #: Rules for late fires, for fires during an open run, and for failed runs.
    policies: PoliciesInput | None = None
    #: Jobs with a higher priority go first.
    priority: int | None = None
    #: All other properties.
    properties: dict[str, str] | None = None
    #: Its schedule; an empty one: only triggers start it.
    schedule: ScheduleInput | None = None
    #: Jobs that begin when a run of this one ends; an empty list removes all.
    successors: list[SuccessorInput] | None = None
    #: The task of a task job.
    task: TaskSettings | None = None
    #: For a change: the version that it is based on; a change of another version is rejected.
    version: int | None = None


@dataclass(kw_only=True)
class JobOutput(Model):
    """A job, with the state of its schedule."""

    #: When it was created.
    creation_time: datetime
    #: Free text for people.
    description: str | None
    #: Number of consecutive failed runs, up to now.
    failures: int
    #: Number of scheduled runs so far.
    fires: int
    #: Its id.
    id: str
    #: Whether it was deleted; its history stays.
    is_deleted: bool
    #: Whether triggers start it.
    is_enabled: bool
    #: Its kind.
    job_type: JobKind
    #: Its name, unique among the jobs that are not deleted.
    name: str
    #: The id as a number, for clients that need 64 bits.
    number: str
    #: A higher value runs first.
    priority: int
    #: All other settings, by key. Unknown keys are kept.
    properties: Properties
    #: When it was last changed.
    update_time: datetime
    #: Incremented by each change; a change request may name the version that it is based on.
    version: int
    #: Statistics of its runs. Lists of jobs omit it.
    activity: JobActivity | None = None
    #: The request of a callback job. Its secret is never shown.
    callback: Callback | None = None
    #: Who created it: the role of a token, if tokens are in use.
    create_by: str | None = None
    #: Its first cron expression.
    cron: str | None = None
    #: Why it is disabled, if a reason was given.
    disabled_reason: str | None = None
    #: The group of the job.
    group: str | None = None
    #: The last scheduled time that made a run.
    last_fire: datetime | None = None
    #: When its last run was created, by hand or by plan. Only lists of jobs have it; a single job has
    #: `activity`.
    last_run_time: datetime | None = None
    #: The next fire; absent: there is none, or none until a run has ended.
    next_fire: datetime | None = None
    #: How to handle fires that are late or overlap with a run, and runs that fail.
    policies: Policies | None = None
    #: When it runs automatically.
    schedule: Schedule | None = None
    #: Jobs that begin when a run of this one ends.
    successors: list[Successor] | None = None
    #: The task of a task job.
    task: TaskSettings | None = None
    #: Who changed it last.
    update_by: str | None = None


@dataclass(kw_only=True)
class JobOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[JobOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class JobStatusOutput(Model):
    """The statistics of one node for one run: the seeds' *JobStatus*."""

    #: Answered with a status of 400 or above, or not answered.
    error: int
    #: The run.
    identity: str
    #: The job.
    job_id: str
    #: Not yet downloaded.
    left: int
    #: The state of the run.
    status: RunState
    #: Downloaded completely with a status below 400.
    success: int
    #: Accepted by the run.
    total: int
    #: The node; absent for the total of all nodes.
    node_id: str | None = None
    #: Its name, or the last digits of its id.
    node_name: str | None = None
    #: Time of its last report.
    update_time: datetime | None = None


@dataclass(kw_only=True)
class Keep(Model):
    """How much of a job's history is kept; if absent, the broker's setting applies."""

    #: Milliseconds to keep a run after its end.
    age: int | None = None
    #: Maximum number of ended runs to keep, the newest ones.
    runs: int | None = None


@dataclass(kw_only=True)
class KindOutput(Model):
    """The actors of a kind together."""

    #: Number of actors.
    count: int
    #: registry, job, run, node, worker, session …
    kind: str
    #: Messages handled by the actors of this kind, including those that have ended.
    messages_handled: int
    #: Number of waiting messages.
    queue_depth: int
    #: Actors that are being restarted.
    restarting: int
    #: Restarts of the live actors.
    restarts: int
    #: Actors with an error.
    with_errors: int
    #: The actor that supervises them; absent for those that are not restarted.
    parent: str | None = None
    #: Microseconds for a message, on average; absent if it is not measured.
    time_per_message: float | None = None


@dataclass(kw_only=True)
class Kinds(Model):
    """All kinds."""

    #: Each of them.
    items: list[KindOutput]


@dataclass(kw_only=True)
class LastRun(Model):
    """How a run ended."""

    #: The run.
    identity: str
    #: How it ended.
    state: RunState
    #: When it ended.
    finish_time: datetime | None = None
    #: When its first attempt began.
    start_time: datetime | None = None
    #: Duration, in milliseconds.
    took_ms: int | None = None


@dataclass(kw_only=True)
class Lateness(Model):
    """The lateness of a job's fires in milliseconds, over at most the last 1,000."""

    #: Number of measured fires.
    count: int
    #: The maximum.
    max: int
    #: The median.
    p50: int
    #: The 99th percentile.
    p99: int


@dataclass(kw_only=True)
class LogAccepted(Model):
    """The result of sending lines."""

    #: Number of stored lines.
    accepted: int
    #: Number of lines that exceed the log limit of the run.
    dropped: int


@dataclass(kw_only=True)
class LogInput(Model):
    """A log line from the worker or node of a run."""

    #: The text, at most 8,192 bytes.
    text: str
    #: The time; now if absent.
    at: datetime | None = None
    #: trace, debug, info, warning, error, critical, or 0 to 5; info if absent.
    level: LogLevel | None = None
    #: worker, stdout, stderr …: at most 50 characters; `worker` if absent.
    source: str | None = None


@dataclass(kw_only=True)
class LogLine(Model):
    """A line of a run's log."""

    #: When it was written.
    at: datetime
    #: The number of the line, over all runs: pass the last one as `after`.
    id: int
    #: trace, debug, info, warning, error, critical.
    level: str
    #: broker, worker, stdout, stderr …
    source: str
    #: The text.
    text: str


@dataclass(kw_only=True)
class LogPage(Model):
    """A part of a run's log."""

    #: The lines. Those with id 0 come from the run's own data: its creation and its start.
    items: list[LogLine]
    #: Whether there are more lines now than the limit.
    more: bool
    #: Pass it as `after` to get the next lines.
    next: int
    #: The state of the run: after its end no more lines come.
    state: RunState


@dataclass(kw_only=True)
class MessagesOutput(Model):
    """Messages of one type."""

    #: Number of messages handled.
    count: int
    #: The kind of the actor and the type: `node.heartbeat`.
    type: str
    #: Microseconds for each, on average; absent if it is not measured.
    time: float | None = None


@dataclass(kw_only=True)
class Misfire(Model):
    """Fires that passed while the broker was not running or too busy."""

    #: Milliseconds that a fire may be late and still counts as on time.
    grace: int
    #: For `all`: the maximum number of fires to make up for, the latest ones.
    limit: int
    #: What to do.
    policy: MisfirePolicy
    #: Milliseconds: older fires are missed under every policy.
    window: int


@dataclass(kw_only=True)
class MisfireInput(Model):
    """Fires that passed while the broker was not running or too busy."""

    #: Milliseconds that a fire may be late and still counts as on time.
    grace: int | None = None
    #: For `all`: the maximum number of fires to make up for, the latest ones.
    limit: int | None = None
    #: What to do.
    policy: MisfirePolicy | None = None
    #: Milliseconds: older fires are missed under every policy.
    window: int | None = None


@dataclass(kw_only=True)
class NewHook(Model):
    """A new hook."""

    #: When it was created.
    creation_time: datetime
    #: Its id.
    id: str
    #: The job that it triggers.
    job_id: str
    #: Its name.
    name: str
    #: The path to call by POST.
    path: str
    #: Its secret, which is shown only here.
    secret: str
    #: Who created it.
    create_by: str | None = None


@dataclass(kw_only=True)
class NewToken(Model):
    """A new token."""

    #: When it was created.
    creation_time: datetime
    #: Whether it has expired.
    is_expired: bool
    #: Its name.
    name: str
    #: Its role.
    role: str
    #: Its text, which a client sends. The broker does not store it and shows it only here.
    text: str
    #: Who created it.
    create_by: str | None = None
    #: When it expires. Absent: when it is revoked.
    expire_time: datetime | None = None
    #: The groups of jobs that it is limited to. Absent: all jobs.
    groups: list[str] | None = None


@dataclass(kw_only=True)
class NextFire(Model):
    """The next fire of a job."""

    #: Absent: there is none, or none until a run has ended.
    next_fire: datetime | None = None


@dataclass(kw_only=True)
class NodeConnectionOutput(Model):
    """A connection of a node."""

    #: When it began.
    connect_time: datetime
    #: The address that the node reported.
    ip_address: str
    #: When the broker missed the node; absent: it is connected.
    disconnect_time: datetime | None = None
    #: Why it ended.
    reason: str | None = None


@dataclass(kw_only=True)
class NodeConnectionOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[NodeConnectionOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class NodeLoad(Model):
    """The load of a node."""

    #: CPU use in percent of all processors.
    cpu: int
    #: Free memory in MB.
    free_memory: int
    #: Running blocks and programs.
    process_count: int


@dataclass(kw_only=True)
class NodeOutput(Model):
    """A node."""

    #: When it was first seen.
    creation_time: datetime
    #: The group it belongs to.
    group: str
    #: Number of blocks that it holds.
    holding: int
    #: Its IP address.
    ip_address: str
    #: It gets no new work, and shuts down when it has finished.
    is_draining: bool
    #: The operator's setting: whether it gets work.
    is_enabled: bool
    #: It has to shut down.
    is_leaving: bool
    #: Whether it is connected.
    is_online: bool
    #: When it last sent something.
    last_online_time: datetime
    #: Maximum number of concurrent blocks.
    max_process_count: int
    #: Memory in MB.
    memory: int
    #: Its name; the last 8 digits of its id if it has sent none.
    name: str
    #: Its id.
    node_id: str
    #: Console or Web.
    node_type: str
    #: The id as a number, for clients that need 64 bits.
    number: str
    #: windows, linux …
    operating_system: str
    #: Processors.
    processor_count: int
    #: Number of programs that runs have there.
    programs: int
    #: When; until the first change, when it was first seen.
    update_time: datetime
    #: Who first connected it: the role of its token, if tokens are in use.
    create_by: str | None = None
    #: The load in its last heartbeat.
    load: NodeLoad | None = None
    #: Maximum number of concurrent programs as reported at connect: 0 if it accepts none; absent if not
    #: reported.
    max_programs: int | None = None
    #: Why it is disabled, draining or leaving.
    reason: str | None = None
    #: What it has of each run; lists of nodes omit it.
    runs: list[NodeRunOutput] | None = None
    #: Who last changed its settings.
    update_by: str | None = None


@dataclass(kw_only=True)
class NodeOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[NodeOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class NodeRunOutput(Model):
    """What a node has of a run."""

    #: Number of its blocks that the node holds.
    blocks: int
    #: The run.
    identity: str
    #: Number of its programs on the node.
    programs: int
    #: The name of its job; absent if the run is gone.
    job_name: str | None = None


@dataclass(kw_only=True)
class NodeStatusOutput(Model):
    """The status of a node in one heartbeat."""

    #: CPU use in percent of all processors.
    cpu: int
    #: When it was reported.
    creation_time: datetime
    #: Free memory in MB.
    free_memory: int
    #: Running blocks and programs.
    process_count: int


@dataclass(kw_only=True)
class NodeStatusOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[NodeStatusOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class Outcome(Model):
    """One request and its response as JSON."""

    #: The body in base64.
    content: str
    #: The headers of the response.
    headers: list[tuple[str, str]]
    #: The request as it was pushed, including unknown members.
    request: Request
    #: The request's id.
    request_id: str
    #: The HTTP status; 0 if there was no response.
    status: int
    #: Duration of the last try, in milliseconds.
    time: int
    #: Number of tries.
    tries: int
    #: Why there is no response, or no complete one.
    error: FetchError | None = None
    #: When the last try began, if its node reported it.
    fetched_at: datetime | None = None
    #: The IP address that responded, if its node reported it.
    remote_address: str | None = None
    #: The request of the final response, after redirects, if its node reported it.
    sent: Sent | None = None
    #: The final URL after redirects, if there were any.
    target_url: str | None = None


@dataclass(kw_only=True)
class Pace(Model):
    """How fast a node may send requests to the site of a block. The node has the site to itself until the block
    is reported.
    """

    #: Maximum number of concurrent requests.
    connections: int
    #: Minimum milliseconds between the end of an answer and the next request, first tries and retries alike.
    delay: int
    #: Random extra delay, at most this many milliseconds.
    jitter: int
    #: Milliseconds from now before the first request may begin.
    not_before: int
    #: Milliseconds without a message from the broker after which the node starts no more requests of this block:
    #: by then another node may have the site.
    right: int
    #: The site: a host, a registrable domain or an IP address.
    site: str


@dataclass(kw_only=True)
class PackageOutput(Model):
    """A package that the broker stores."""

    #: When it was first uploaded.
    creation_time: datetime
    #: Its media type.
    media_type: str
    #: SHA-256 of its bytes: 64 hexadecimal digits.
    sha256: str
    #: Its size, in bytes.
    size: int
    #: The URL for nodes: the value of the job property `Package`.
    url: str
    #: Who uploaded it: the role of a token, if tokens are in use.
    create_by: str | None = None
    #: The name of its first upload.
    name: str | None = None


@dataclass(kw_only=True)
class PackageOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[PackageOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class Paused(Model):
    """A request of a block without a pace, whose site asked for a pause."""

    #: The request.
    request_id: str
    #: Milliseconds from its `Retry-After`; absent: it had none.
    retry_after: int | None = None


@dataclass(kw_only=True)
class PendingRequest(Model):
    """A request of a run that has no result yet."""

    #: The block that it is in.
    block_id: str
    #: Links between it and a first request.
    depth: int
    #: A higher one is dispatched first.
    priority: int
    #: The request.
    request_id: str
    #: How often nodes tried it that gave it back.
    tries: int
    #: Its URL as it was pushed.
    url: str
    #: Absent: GET.
    method: str | None = None
    #: The site that it waits for; absent if its pace is not kept.
    site: str | None = None


@dataclass(kw_only=True)
class PendingRequestPage(Model):
    """A page of a list."""

    #: The items.
    items: list[PendingRequest]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class Policies(Model):
    """The policies of one job. Absent values mean the default."""

    #: How much of its history is kept.
    keep: Keep | None = None
    #: Milliseconds after its scheduled time at which a run that has not begun causes an alert.
    late_after: int | None = None
    #: Number of consecutive failed runs after which the job is disabled.
    max_failures: int | None = None
    #: Fires that passed while the broker was not running.
    misfire: Misfire | None = None
    #: A fire while another run of the job is not over. Default: `skip` for a job with triggers, `allow` for one
    #: without.
    overlap: Overlap | None = None
    #: Retries of a failed run.
    retry: Retry | None = None
    #: Milliseconds without a successful run after which there is an alert.
    silent_after: int | None = None
    #: Milliseconds after its start at which an attempt is ended as failed.
    timeout: int | None = None


@dataclass(kw_only=True)
class PoliciesInput(Model):
    """The policies of one job. Absent values mean the default."""

    #: How much of its history is kept.
    keep: Keep | None = None
    #: Milliseconds after its scheduled time at which a run that has not begun causes an alert.
    late_after: int | None = None
    #: Number of consecutive failed runs after which the job is disabled.
    max_failures: int | None = None
    #: Fires that passed while the broker was not running.
    misfire: MisfireInput | None = None
    #: A fire while another run of the job is not over. Default: `skip` for a job with triggers, `allow` for one
    #: without.
    overlap: Overlap | None = None
    #: Retries of a failed run.
    retry: RetryInput | None = None
    #: Milliseconds without a successful run after which there is an alert.
    silent_after: int | None = None
    #: Milliseconds after its start at which an attempt is ended as failed.
    timeout: int | None = None


@dataclass(kw_only=True)
class PreviewFire(Model):
    """A future fire."""

    #: Its time.
    at: datetime
    #: plan, asked, silence.
    kind: str
    #: The same in the job's zone, with the offset.
    local: str
    #: The blackout that contains it: it will make no run.
    blackout: str | None = None
    #: The effect of a change of the zone's offset.
    note: str | None = None
    #: The trigger that makes it, counted from 0.
    trigger: int | None = None


@dataclass(kw_only=True)
class PreviewInput(Model):
    """A schedule to preview without storing it."""

    #: Fires after this time; now if absent.
    after: datetime | None = None
    #: Maximum number of fires, 1 to 1,000; 5 if absent.
    count: int | None = None
    #: Short form of a schedule with one cron expression.
    cron: str | None = None
    #: The schedule.
    schedule: ScheduleInput | None = None


@dataclass(kw_only=True)
class PreviewOutput(Model):
    """The next fires of a schedule, as it stands now."""

    #: The next fires.
    fires: list[PreviewFire]
    #: Each parsed cron expression: seven fields, weekdays counted from Sunday = 0.
    understood: list[str]
    #: The zone of the local times.
    zone: str
    #: Notes: an interval that waits for the end of a run, a schedule that ends.
    remarks: list[str] | None = None


@dataclass(kw_only=True)
class Problem(Model):
    """An error, for programs (`type`, `status`, `field`) and for people (`title`, `detail`)."""

    #: The details of this error.
    detail: str
    #: The HTTP status.
    status: int
    #: A title for people.
    title: str
    #: `/problems/` and a name that never changes.
    type: str
    #: The part of the input with the error: `requests[3].url`.
    field: str | None = None


@dataclass(kw_only=True)
class ProgramRef(Model):
    """One program: an attempt of an instance of a run."""

    #: The start of the instance, counted from 1.
    attempt: int
    #: The run.
    identity: str
    #: The instance, from 0.
    instance: int


@dataclass(kw_only=True)
class Pushed(Model):
    """The response to a push or an acknowledgement: it is on disk."""

    #: Number of accepted requests.
    accepted: int
    #: Number of blocks in an acknowledgement that were already acknowledged.
    already: int
    #: The blocks that contain the requests.
    block_ids: list[str]
    #: Number of requests that the run had already seen.
    duplicates: int
    #: Number of requests beyond the limit of the run, in total or for their site.
    over_limit: int
    #: Number of requests beyond the depth limit of the run.
    too_deep: int
    #: Number of requests whose URL is too long, or whose path repeats itself.
    trapped: int


@dataclass(kw_only=True)
class Reason(Model):
    """The body of an order."""

    #: A text for people.
    reason: str | None = None


@dataclass(kw_only=True)
class ReasonInput(Model):
    """The reason of an operator's order."""

    #: A text for people.
    reason: str | None = None


@dataclass(kw_only=True)
class RecentOutput(Model):
    """A message that was handled."""

    #: When.
    at: datetime
    #: Microseconds that it took.
    time: int
    #: As in the list of types.
    type: str


@dataclass(kw_only=True)
class RedriveInput(Model):
    """Which dead runs to repeat: runs that failed for good and that no other run repeats."""

    #: Only list the runs.
    dry_run: bool | None = None
    #: Only runs created at this time or later.
    from_: datetime | None = None
    #: Only runs of jobs that are in this group now.
    group: str | None = None
    #: Only runs of this job.
    job_id: str | None = None
    #: Maximum number of runs, 1 to 1,000; 100 if absent.
    limit: int | None = None
    #: Only runs created at this time or earlier.
    to: datetime | None = None


@dataclass(kw_only=True)
class RedriveJobInput(Model):
    """How to repeat the dead runs of a job."""

    #: Only list the runs.
    dry_run: bool | None = None


@dataclass(kw_only=True)
class RedriveOutput(Model):
    """The result of repeating dead runs."""

    #: The dead runs that were found.
    dead: list[str]
    #: Whether there are more dead runs than one call handles.
    more: bool
    #: The new runs, in the order of `dead`, without those in `refused`; in a dry run none.
    runs: list[str]
    #: The dead runs for which there is no new run, and why.
    refused: list[RedrivenRun] | None = None


@dataclass(kw_only=True)
class RedrivenRun(Model):
    """The result for one dead run."""

    #: Its job.
    job_id: str
    #: The dead run.
    retry_of: str
    #: The run that repeats it.
    identity: str | None = None
    #: Why there is no new run.
    refused: str | None = None


@dataclass(kw_only=True)
class RedrivenRuns(Model):
    """The result of repeating dead runs."""

    #: Number of dead runs that were found.
    found: int
    #: Whether there are more than the limit.
    more: bool
    #: Number of repeated runs; in a dry run 0.
    redriven: int
    #: The result for each run.
    runs: list[RedrivenRun]


@dataclass(kw_only=True)
class Reported(Model):
    """The response to an accepted report: it is on disk."""

    #: All other requests.
    error: int
    #: Requests that got a status below 400.
    success: int


@dataclass(kw_only=True)
class Request(Model):
    """A request, written by a worker and read by a node. Unknown members are kept and come back."""

    #: `http` or `https`.
    url: str
    #: A body as text.
    body: str | None = None
    #: Number of links between it and a first request.
    depth: int | None = None
    #: A deliberate repetition: it is not compared with the seen requests of the run, except by its key.
    dont_filter: bool | None = None
    #: The character encoding, if it is known better than from the page.
    encoding: str | None = None
    #: Headers of this request.
    headers: dict[str, str] | None = None
    #: Whether it may be sent more than once. By default only for GET, HEAD, OPTIONS, TRACE, PUT and DELETE.
    idempotent: bool | None = None
    #: The text that makes it unique in its run, instead of method, URL and body.
    key: str | None = None
    #: A custom value of the worker; returned unchanged.
    meta: Any = None
    #: The method; GET by default.
    method: str | None = None
    #: From -100 to 100: a request with a higher priority is dispatched first. Default: 0.
    priority: int | None = None
    #: A proxy for this request, instead of the job's proxy.
    proxy: str | None = None
    #: The URLs that redirected to it, in order, if the run requested the targets of redirects.
    redirected_from: list[str] | None = None
    #: Set by the broker; a value in the input is ignored.
    request_id: str | None = None
    #: Set by the broker: number of tries by nodes that gave it back. A value in the input is ignored.
    tries: int | None = None


@dataclass(kw_only=True)
class RequestInput(Model):
    """A request, written by a worker and read by a node. Unknown members are kept and come back."""

    #: `http` or `https`.
    url: str
    #: A body as text.
    body: str | None = None
    #: Number of links between it and a first request.
    depth: int | None = None
    #: A deliberate repetition: it is not compared with the seen requests of the run, except by its key.
    dont_filter: bool | None = None
    #: The character encoding, if it is known better than from the page.
    encoding: str | None = None
    #: Headers of this request.
    headers: dict[str, str] | None = None
    #: Whether it may be sent more than once. By default only for GET, HEAD, OPTIONS, TRACE, PUT and DELETE.
    idempotent: bool | None = None
    #: The text that makes it unique in its run, instead of method, URL and body.
    key: str | None = None
    #: A custom value of the worker; returned unchanged.
    meta: Any = None
    #: The method; GET by default.
    method: str | None = None
    #: From -100 to 100: a request with a higher priority is dispatched first. Default: 0.
    priority: int | None = None
    #: A proxy for this request, instead of the job's proxy.
    proxy: str | None = None
    #: The URLs that redirected to it, in order, if the run requested the targets of redirects.
    redirected_from: list[str] | None = None
    #: Set by the broker; a value in the input is ignored.
    request_id: Any = None
    #: Set by the broker: number of tries by nodes that gave it back. A value in the input is ignored.
    tries: int | None = None


@dataclass(kw_only=True)
class RequestReport(Model):
    """The result of one request, in a [`BlockReport`]."""

    #: The request.
    request_id: str
    #: The body in base64.
    content: str | None = None
    #: Why there is no response, or no complete one.
    error: FetchError | None = None
    #: When the last try began.
    fetched_at: datetime | None = None
    #: The headers of the response, in order.
    headers: list[tuple[str, str]] | None = None
    #: The HTTP status; 0 or absent if there was no response.
    status: int | None = None
    #: The final URL after redirects.
    target_url: str | None = None
    #: The body as text, for clients without the raw bytes.
    text: str | None = None
    #: Duration of the last try, in milliseconds.
    time: int | None = None
    #: Number of tries.
    tries: int | None = None


@dataclass(kw_only=True)
class RequeueInput(Model):
    """Which failed requests of a run to queue again; all by default."""

    #: Only count the requests.
    dry_run: bool | None = None
    #: Only requests that failed for this reason.
    kind: FetchErrorKind | None = None
    #: Maximum number of requests, 1 to 10,000; 1,000 if absent.
    limit: int | None = None
    #: Only requests to this host or site.
    site: str | None = None
    #: Only requests with this HTTP status; 0: those without a response.
    status: int | None = None


@dataclass(kw_only=True)
class Requeued(Model):
    """The result of queueing failed requests again."""

    #: Failed requests that were found and had not been queued again before.
    found: int
    #: There are more requests than the limit, or more blocks than one call checks: call again.
    more: bool
    #: Requests beyond the limit of the run.
    over_limit: int
    #: Requests that are queued now; in a dry run 0.
    queued: int
    #: The new run that begins with them, because their own run is over.
    identity: str | None = None


@dataclass(kw_only=True)
class Retry(Model):
    """Retries of a failed run, under the same identity."""

    #: Milliseconds before the second attempt.
    delay: int
    #: The growth factor of the delay from attempt to attempt.
    factor: float
    #: The fraction of the delay, 0 to 1, that is randomly added or subtracted.
    jitter: float
    #: Number of attempts after the first.
    limit: int
    #: The maximum delay in milliseconds.
    max_delay: int


@dataclass(kw_only=True)
class RetryInput(Model):
    """Retries of a failed run, under the same identity."""

    #: Milliseconds before the second attempt.
    delay: int | None = None
    #: The growth factor of the delay from attempt to attempt.
    factor: float | None = None
    #: The fraction of the delay, 0 to 1, that is randomly added or subtracted.
    jitter: float | None = None
    #: Number of attempts after the first.
    limit: int | None = None
    #: The maximum delay in milliseconds.
    max_delay: int | None = None


@dataclass(kw_only=True)
class RunOutput(Model):
    """A run."""

    #: The attempt, from 1.
    attempt: int
    #: Number of block dispatches so far.
    block_times: int
    #: Blocks by state.
    blocks: BlockCounts
    #: Bytes of the bodies that a block run has downloaded, decompressed. Lists show 0 for runs that succeeded.
    bytes: int
    #: The class; for a callback the method and the URL.
    class_name: str
    #: When it was created.
    creation_time: datetime
    #: Answered with a status of 400 or above, or not answered.
    error: int
    #: Its id.
    identity: str
    #: Its job.
    job_id: str
    #: The job's name.
    job_name: str
    #: block, task, application or callback.
    kind: str
    #: Not yet downloaded.
    left: int
    #: The id as a number, for clients that need 64 bits.
    number: str
    #: Runs with a higher priority go first.
    priority: int
    #: Number of URLs that it has seen.
    seen: int
    #: Whether its worker has pushed the first requests.
    start_returned: bool
    #: Its state.
    state: RunState
    #: Downloaded completely with a status below 400.
    success: int
    #: Accepted by the run.
    total: int
    #: The latest of its times.
    update_time: datetime
    #: The run of another job whose end started this one.
    after: str | None = None
    #: Its arguments: JSON for a task, text for other runs. Absent in lists, and if there are none; a program has
    #: those of its job then.
    arguments: Any = None
    #: The broker that executes the run, or did; absent: the leader.
    broker_id: str | None = None
    #: Blocks at nodes now; absent where it is unknown: while the run is being loaded, and on a standby.
    consuming: int | None = None
    #: For a block run: how it treats sites. Absent in lists.
    crawling: CrawlingOutput | None = None
    #: Who created it: the role of the token that triggered it by hand, `scheduler`, or `workflow` if the end of
    #: another run did.
    create_by: str | None = None
    #: When it ended.
    finish_time: datetime | None = None
    #: When its next attempt may begin.
    not_before: datetime | None = None
    #: For a block run: since when it is paused and dispatches no blocks. Absent: it is not paused, or has ended.
    paused_at: datetime | None = None
    #: The scheduled time of the run.
    planned_at: datetime | None = None
    #: Progress of a running task: 0 to 100.
    progress: int | None = None
    #: The progress as text.
    progress_text: str | None = None
    #: The reason for its state.
    reason: str | None = None
    #: The result: for a callback, the response.
    result: Any = None
    #: The run that it repeats.
    retry_of: str | None = None
    #: Memory for the seen URLs, in bytes; absent like `consuming`.
    seen_bytes: int | None = None
    #: Sites that an active block run tells apart: those with a pace or a robots.txt, held ones, and all with
    #: `MaxPerSite`. Absent: none.
    sites: SitesOfRun | None = None
    #: When its first attempt began.
    start_time: datetime | None = None
    #: W3C trace id: 32 hexadecimal digits.
    trace_id: str | None = None
    #: Who stopped it: the role of a token, or `broker`.
    update_by: str | None = None
    #: What a pending run waits for.
    waits_for: WaitsFor | None = None
    #: The worker of the run; after its end, the worker of its last attempt. Absent for programs, callbacks and
    #: runs on several workers, whose instances name them.
    worker_id: str | None = None


@dataclass(kw_only=True)
class RunOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[RunOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class RunSiteOutput(Model):
    """A site of a run."""

    #: Number of blocks of the run for this site that are at nodes.
    at_nodes: int
    #: Requests to the site that failed.
    error: int
    #: Requests to the site that have no result yet.
    left: int
    #: Its name.
    name: str
    #: Number of blocks of the run that wait for the site.
    pending: int
    #: Requests to the site that succeeded.
    success: int
    #: Maximum number of concurrent requests; absent: the run is over.
    connections: int | None = None
    #: Milliseconds between two requests; 0: it has no pace; absent: the run is over.
    delay: int | None = None
    #: What the delay comes from; absent: there is none, or the run is over.
    delay_by: DelayBy | None = None
    #: The failed requests by kind and status, the largest number first, if the call asks for them
    #: (`errors=true`).
    errors: list[FailureCount] | None = None
    #: The hold; absent: it is not on hold, or the run is over.
    held: HeldOutput | None = None
    #: The last error, if the site has not answered since.
    last_error: SiteErrorOutput | None = None
    #: When the next request may begin; absent: at once, unless another run has the turn.
    next_at: datetime | None = None


@dataclass(kw_only=True)
class RunSiteOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[RunSiteOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class Schedule(Model):
    """When a job runs. Without a trigger: only by hand, or when its last run requested it."""

    #: Each of them makes the job run; a time that two of them name counts once.
    triggers: list[Trigger]
    #: Times at which it does not run.
    blackouts: list[Blackout] | None = None
    #: How numbers of weekdays are counted: `crontab` (0 and 7 are Sunday) or `quartz` (1 is Sunday).
    dialect: Dialect | None = None
    #: No fires after this time.
    end_at: datetime | None = None
    #: How to handle local times that occur twice: `first`, `second` or `both`.
    fold: FoldRule | None = None
    #: How to handle local times that the zone skips: `skip`, `after` or `shift`. See docs/operations.md for the
    #: default.
    gap: GapRule | None = None
    #: The maximum time between two fires in milliseconds, even if a run requested a later time.
    longest_silence: int | None = None
    #: The maximum number of runs that the plan makes.
    max_fires: int | None = None
    #: No fires before this time.
    start_at: datetime | None = None
    #: The IANA name of the time zone for cron expressions and blackouts; UTC if absent.
    zone: str | None = None


@dataclass(kw_only=True)
class ScheduleInput(Model):
    """When a job runs. Without a trigger: only by hand, or when its last run requested it."""

    #: Times at which it does not run.
    blackouts: list[Blackout] | None = None
    #: How numbers of weekdays are counted: `crontab` (0 and 7 are Sunday) or `quartz` (1 is Sunday).
    dialect: Dialect | None = None
    #: No fires after this time.
    end_at: datetime | None = None
    #: How to handle local times that occur twice: `first`, `second` or `both`.
    fold: FoldRule | None = None
    #: How to handle local times that the zone skips: `skip`, `after` or `shift`. See docs/operations.md for the
    #: default.
    gap: GapRule | None = None
    #: The maximum time between two fires in milliseconds, even if a run requested a later time.
    longest_silence: int | None = None
    #: The maximum number of runs that the plan makes.
    max_fires: int | None = None
    #: No fires before this time.
    start_at: datetime | None = None
    #: Each of them makes the job run; a time that two of them name counts once.
    triggers: list[Trigger] | None = None
    #: The IANA name of the time zone for cron expressions and blackouts; UTC if absent.
    zone: str | None = None


@dataclass(kw_only=True)
class Sent(Model):
    """A request as the agent sent it to the final URL."""

    #: The headers.
    headers: list[tuple[str, str]]
    #: The method.
    method: str


@dataclass(kw_only=True)
class SeriesOutput(Model):
    """What the broker did in a period, in steps of equal length."""

    #: Start of the first step.
    from_: datetime
    #: Length of a step in milliseconds: 60000, 900000 or 21600000.
    step: int
    #: End of the last step, which may not be over yet.
    to: datetime
    #: The values by name, one for each step; `null` where the broker was not running or nothing was measured.
    values: dict[str, list[float | None]]


@dataclass(kw_only=True)
class SettingOutput(Model):
    """A setting that is in force."""

    #: What it does.
    description: str
    #: The flag of `webloom broker`.
    name: str
    #: Its value, for people.
    value: str


@dataclass(kw_only=True)
class Settings(Model):
    """All settings."""

    #: Each of them.
    items: list[SettingOutput]


@dataclass(kw_only=True)
class SettledTask(Model):
    """The acknowledgement of the last report of an attempt."""

    #: The attempt.
    attempt: int
    #: The run.
    identity: str
    #: The instance.
    instance: int | None = None
    #: Why the report was rejected, if it was.
    refused: str | None = None


@dataclass(kw_only=True)
class SiteErrorOutput(Model):
    """The last error at a site. It is absent as soon as the site has answered, also with an error status."""

    #: When the broker learned it.
    at: datetime
    #: The kind of the error.
    kind: FetchErrorKind
    #: What happened.
    message: str
    #: Whether robots.txt was requested.
    robots: bool
    #: Number of tries of the request so far. For robots.txt: number of fetches in a row that failed.
    tries: int


@dataclass(kw_only=True)
class SiteNews(Model):
    """A node's findings about the site of a block, for its pace."""

    #: Milliseconds since the last answer of the site ended, or since the last request began if that is later.
    last_began: int | None = None
    #: For a block without a pace: requests whose sites asked for a pause.
    paused: list[Paused] | None = None
    #: Milliseconds from now in which the site must not get requests: from its last `Retry-After`.
    retry_after: int | None = None


@dataclass(kw_only=True)
class SiteOutput(Model):
    """A site in the broker."""

    #: Consecutive failures, halved by each success.
    failures: int
    #: Its name: a host, a domain or an address; an origin if it has no pace.
    name: str
    #: Milliseconds between two requests; absent: no run has needed a turn since the broker started.
    delay: int | None = None
    #: The hold; absent: it is not on hold.
    held: HeldOutput | None = None
    #: The last error, if the site has not answered since.
    last_error: SiteErrorOutput | None = None
    #: When the next request may begin; absent: at once.
    next_at: datetime | None = None
    #: The run that has the turn.
    run: str | None = None


@dataclass(kw_only=True)
class SiteOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[SiteOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class SiteSettings(Model):
    """Settings for all requests of a run to its site."""

    #: The character encoding of its pages, if it overrides what the pages declare.
    encoding: str | None = None
    #: Default headers for each request to its hosts.
    headers: dict[str, str] | None = None
    #: Hosts that get the job's headers and cookies: `example.com`, `*.example.com`, `host:port`, `*`. None:
    #: where the run began.
    hosts: list[str] | None = None
    #: A proxy for all requests: `http://`, `https://`, `socks5://` (the node resolves names) or `socks5h://`
    #: (the proxy does).
    proxy: str | None = None
    #: The `User-Agent`.
    user_agent: str | None = None


@dataclass(kw_only=True)
class SitesOfRun(Model):
    """Sites of a run."""

    #: Sites with a block at a node.
    active: int
    #: Sites that are held, for any reason. Of more than 2,000 sites, those that are held under their own name.
    held: int
    #: All sites that the run has met.
    total: int


@dataclass(kw_only=True)
class StartReturned(Model):
    """The body of a `start-returned`."""

    #: Why there are no requests. The run fails.
    error: str | None = None


@dataclass(kw_only=True)
class StartRun(Model):
    """The order to process a run."""

    #: The attempt of the run, from 1.
    attempt: int
    #: The class of the run.
    class_name: str
    #: The run.
    identity: str
    #: Its job.
    job_id: str
    #: The job's properties.
    properties: dict[str, str]
    #: Whether the first requests were already pushed by a worker: continue with the results.
    start_returned: bool
    #: The arguments of the trigger or the job.
    arguments: str | None = None
    #: The scheduled time of the run; absent if it was triggered by hand.
    planned_at: datetime | None = None
    #: W3C trace id: 32 hexadecimal digits.
    trace_id: str | None = None


@dataclass(kw_only=True)
class Successor(Model):
    """A job that begins when a run of another one ends."""

    #: The successor's name or id.
    job: str
    #: The run ends after which it begins.
    on: AfterEnd


@dataclass(kw_only=True)
class SuccessorInput(Model):
    """A job that begins when a run of another one ends."""

    #: The successor's name or id.
    job: str
    #: The run ends after which it begins.
    on: AfterEnd | None = None


@dataclass(kw_only=True)
class TaskError(Model):
    """Why a task failed."""

    #: A text for people.
    message: str
    #: Whether it would fail again: there will be no other attempt.
    permanent: bool | None = None
    #: The location in the program.
    stack: str | None = None


@dataclass(kw_only=True)
class TaskOrder(Model):
    """The order to run a task."""

    #: The attempt. Every report returns these three.
    attempt: int
    #: The handler name.
    handler: str
    #: The run.
    identity: str
    #: Its job.
    job_id: str
    #: Milliseconds after which the attempt ends if the broker has received nothing about it: any report renews
    #: the lease, and so does a heartbeat that names the attempt. A worker stops the task when this time has
    #: passed since it sent the last of these messages that got a reply.
    lease: int
    #: The arguments of the function: any JSON.
    arguments: Any = None
    #: The data that the last run of the job stored: any JSON.
    data: Any = None
    #: The instance.
    instance: int | None = None
    #: Number of instances of the run.
    instances: int | None = None
    #: The scheduled time of the run; absent if it was triggered by hand.
    planned_at: datetime | None = None
    #: The span of this attempt in that trace, if the broker sends spans to a collector: the parent of spans that
    #: the task makes.
    span_id: str | None = None
    #: Maximum duration of the attempt, in milliseconds.
    timeout: int | None = None
    #: W3C trace id: 32 hexadecimal digits.
    trace_id: str | None = None


@dataclass(kw_only=True)
class TaskRef(Model):
    """One attempt of one instance of a run."""

    #: The dispatch of the instance, counted from 1.
    attempt: int
    #: The run.
    identity: str
    #: The instance; 0 if there is only one.
    instance: int | None = None


@dataclass(kw_only=True)
class TaskRefInput(Model):
    """One attempt of one instance of a run."""

    #: The dispatch of the instance, counted from 1.
    attempt: int
    #: The run.
    identity: str
    #: The instance; 0 if there is only one.
    instance: int | None = None


@dataclass(kw_only=True)
class TaskReport(Model):
    """A worker's report about an attempt of a task. Each report renews its lease."""

    #: The attempt.
    attempt: int
    #: The run.
    identity: str
    #: The state of the attempt.
    state: TaskState
    #: Data for the next run of the job: any JSON.
    data: Any = None
    #: For `failed`, `refused` or `cancelled`: the reason.
    error: TaskError | None = None
    #: The instance.
    instance: int | None = None
    #: Lines for the log of the run.
    logs: list[LogInput] | None = None
    #: The next fire of the job, once, instead of its schedule; a past time means in 100 ms.
    next_at: datetime | None = None
    #: The progress, 0 to 100.
    progress: int | None = None
    #: For `success`: the result, any JSON.
    result: Any = None
    #: The progress as text.
    text: str | None = None


@dataclass(kw_only=True)
class TaskSettings(Model):
    """Settings of a job of the kind `task`."""

    #: The function's arguments, any JSON, unless the trigger supplies its own.
    arguments: Any = None
    #: Milliseconds that a task has to end after a cancel order; then its run is closed; default 5,000.
    cancel_grace: int | None = None
    #: Only workers of this group.
    group: str | None = None
    #: The handler name that workers watch. Absent: the property `FullClassName`.
    handler: str | None = None
    #: For `hash` and `sticky`: the value to hash. A JSON pointer (RFC 6901) into the arguments; absent: the
    #: whole arguments for `hash`, the job for `sticky`.
    key: str | None = None
    #: Milliseconds without a report after which an attempt counts as lost; default 10,000. Its worker also stops
    #: it within this time, so that it never overlaps with the next attempt.
    lease: int | None = None
    #: Number of attempts that may be lost with their worker before the run fails; default 3. The policy `retry`
    #: counts failures that the function reports.
    lost_attempts: int | None = None
    #: What to do if no worker watches the handler.
    no_worker: NoWorker | None = None
    #: For `shard`: number of parts; 0: one for each connected worker.
    shards: int | None = None
    #: Which of the workers that watch the handler gets the task.
    strategy: Strategy | None = None
    #: Only workers that have all of these tags.
    tags: list[str] | None = None
    #: Only workers of this version.
    version: str | None = None


@dataclass(kw_only=True)
class TokenInput(Model):
    """A token to create."""

    #: Its name, unique: 1 to 50 letters, digits or one of `._@-`. Histories show it.
    name: str
    #: admin, editor, operator, readonly (or viewer), agent or worker.
    role: str
    #: When it expires. Absent: when it is revoked.
    expire_time: datetime | None = None
    #: The groups of jobs that it is limited to; only for editor, operator and readonly. Absent: all jobs.
    groups: list[str] | None = None


@dataclass(kw_only=True)
class TokenOutput(Model):
    """A token, without its text."""

    #: When it was created.
    creation_time: datetime
    #: Whether it has expired.
    is_expired: bool
    #: Its name.
    name: str
    #: Its role.
    role: str
    #: Who created it.
    create_by: str | None = None
    #: When it expires. Absent: when it is revoked.
    expire_time: datetime | None = None
    #: The groups of jobs that it is limited to. Absent: all jobs.
    groups: list[str] | None = None


@dataclass(kw_only=True)
class TokensOutput(Model):
    """All named tokens."""

    #: Each of them.
    items: list[TokenOutput]


@dataclass(kw_only=True)
class Trigger(Model):
    """One trigger. Exactly one of `cron`, `every` and `at` is set."""

    #: The interval counts from the end of the last run instead.
    after_end: bool | None = None
    #: The start of the interval: fire k is at anchor + k · every. The time of creation if absent.
    anchor: datetime | None = None
    #: A single time.
    at: datetime | None = None
    #: A cron expression of 5, 6 (seconds first) or 7 (years last) fields, or a name like `@daily`.
    cron: str | None = None
    #: An interval in milliseconds; 0: run once, then disable the job.
    every: int | None = None


@dataclass(kw_only=True)
class TriggerInput(Model):
    """A trigger of a job."""

    #: Arguments instead of the job's own: any JSON for a task, text for other jobs.
    arguments: Any = None
    #: The scheduled time of an external scheduler: triggers with the same time make one run.
    fire_time: datetime | None = None
    #: Triggers with the same key make one run. The header `Idempotency-Key` means the same.
    idempotency_key: str | None = None
    #: The priority, instead of the job's own.
    priority: int | None = None


@dataclass(kw_only=True)
class TriggeredOutput(Model):
    """The result of one trigger of a batch."""

    #: The run.
    identity: str | None = None
    #: Why there is no run.
    problem: Problem | None = None


@dataclass(kw_only=True)
class WarningOutput(Model):
    """Something that an operator should look at."""

    #: What it is about.
    kind: WarningKind
    #: The name of the job, of the node or of the site; the folder of the database.
    name: str
    #: Since when, or when it happened last.
    at: datetime | None = None
    #: The job.
    job_id: str | None = None
    #: The node.
    node_id: str | None = None
    #: Why, for people.
    reason: str | None = None
    #: The run.
    run_id: str | None = None


@dataclass(kw_only=True)
class Warnings(Model):
    """All warnings."""

    #: Each of them.
    items: list[WarningOutput]


@dataclass(kw_only=True)
class WhyOutput(Model):
    """An explanation: a text for people, and the rule for programs."""

    #: The explanation, sentence by sentence.
    because: list[str]
    #: The rule: due, misfire, window, overlap, blackout, asked, disabled, retry, noWorker …
    rule: str
    #: What is explained: a time or a run.
    subject: str
    #: The verdict: fired, skipped, missed, merged, planned, notPlanned, disabled, waiting, running, over …
    verdict: str
    #: The run, if there is one.
    identity: str | None = None


@dataclass(kw_only=True)
class WorkerFacts(Model):
    """Facts that a worker reports when it begins to watch."""

    #: Its group.
    group: str | None = None
    #: A name for people, and for the order of the strategy `failover`.
    name: str | None = None
    #: A random id of the process: after a reconnect the broker recognizes the same process, and sends lost
    #: messages at once. For another process, or without this id, it waits for the lease.
    process: str | None = None
    #: Maximum number of concurrent tasks; 1 by default; 0: no tasks, only runs of block jobs.
    slots: int | None = None
    #: Free tags for its abilities.
    tags: list[str] | None = None
    #: The version of the program.
    version: str | None = None


@dataclass(kw_only=True)
class WorkerInput(Model):
    """The body of `POST /api/v1/workers`: a worker without a socket."""

    #: The classes that it watches.
    class_names: list[str]
    #: Runs that it already has.
    runs: list[str] | None = None
    #: Tasks that it already has, or whose end is not acknowledged.
    tasks: list[TaskRefInput] | None = None
    #: Facts about the worker.
    worker: WorkerFacts | None = None
    #: The id that it had before, if it registers again, or the number of a known worker.
    worker_id: str | int | None = None


@dataclass(kw_only=True)
class WorkerOutput(Model):
    """A worker, with its present state."""

    #: The handler names that it watches, or watched last.
    class_names: list[str]
    #: When it first connected.
    creation_time: datetime
    #: Whether it uses a socket; otherwise it calls by HTTP.
    has_socket: bool
    #: Its id.
    id: str
    #: Whether it is connected.
    is_online: bool
    #: When it last sent something, as far as known.
    last_seen: datetime
    #: The id as a number, for clients that need 64 bits.
    number: str
    #: The operator's admin state.
    state: WorkerState
    #: Its capabilities or resources.
    tags: list[str]
    #: The current tasks in its last report.
    tasks: list[TaskRef]
    #: When the admin state was set.
    update_time: datetime
    #: Who set it: the role of a token, if tokens are in use.
    by: str | None = None
    #: Who first connected it: the role of its token, if tokens are in use.
    create_by: str | None = None
    #: The group that it reported.
    group: str | None = None
    #: Its name, for people.
    name: str | None = None
    #: The reason for the admin state.
    reason: str | None = None
    #: Maximum number of concurrent tasks; absent if not reported.
    slots: int | None = None
    #: Who last changed its administrative state: the same as `by`, under the usual name.
    update_by: str | None = None
    #: The version of its program.
    version: str | None = None


@dataclass(kw_only=True)
class WorkerOutputPage(Model):
    """A page of a list."""

    #: The items.
    items: list[WorkerOutput]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class WorkerRegistered(Model):
    """The response to a worker without a socket: its id and its timing rules."""

    #: Maximum milliseconds between two calls.
    heartbeat: int
    #: The id as a number, for clients that need 64 bits.
    number: str
    #: Milliseconds of silence after which it counts as lost.
    offline: int
    #: The id of the worker.
    worker_id: str


@dataclass(kw_only=True)
class WorkerWatch(Model):
    """A worker's watch of one class, now or in the past."""

    #: When it began.
    connect_time: datetime
    #: The worker.
    connection_id: str
    #: The class.
    full_class_name: str
    #: The number of the watch.
    id: int
    #: When it ended; absent: it still watches.
    disconnect_time: datetime | None = None


@dataclass(kw_only=True)
class WorkerWatchPage(Model):
    """A page of a list."""

    #: The items.
    items: list[WorkerWatch]
    #: Pass it as `cursor` to get the next page; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class WorkerWorkOutput(Model):
    """What a connected worker did in each of the last minutes, six hours at most. In the memory of the broker:
    it begins again when the worker connects after it was lost, and when the broker restarts.
    """

    #: Tasks that failed, were stopped or refused.
    failed: list[int]
    #: Start of the first step.
    from_: datetime
    #: The highest number of tasks at one moment of each step.
    running: list[int]
    #: Length of a step in milliseconds: 60000.
    step: int
    #: Tasks that succeeded.
    success: list[int]
