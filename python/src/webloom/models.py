# Made by tools/generate.py from the OpenAPI document of the broker. Do not edit.
"""What the REST API takes and gives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeAlias, Union

from ._model import Model

# The ends of a run after which a successor begins.
AfterEnd: TypeAlias = Literal["success", "failure", "always"]

# What a broker is at present.
BrokerRole: TypeAlias = Literal["leader", "standby", "gone"]

# Where word goes.
ChannelKind: TypeAlias = Literal["webhook", "mail"]

# The two ways that the seeds name in which cookies are used.
CookieMode: TypeAlias = Literal["initial", "fixed"]

# How weekday numbers and two restricted day fields are read.
Dialect: TypeAlias = Literal["crontab", "quartz"]

# The closed list of reasons.
FetchErrorKind: TypeAlias = Literal["dns", "connect", "tls", "timeout", "too-large", "body", "redirect", "protocol", "change-ip", "invalid", "refused", "robots", "discarded", "not-reported", "node-lost", "block", "other"]

# What becomes of a fire whose local time comes twice.
FoldRule: TypeAlias = Literal["first", "second", "both"]

# What becomes of a fire whose local time the clock jumps over.
GapRule: TypeAlias = Literal["skip", "after", "shift"]

# What an import takes. It is read as a value first, so that whatever is wrong can be named by its place.
ImportBody: TypeAlias = Union["list[JobInput]", "ImportFile"]

# What kind of work a job is.
JobKind: TypeAlias = Literal["block", "application", "callback", "task"]

# Whether a run of a job is under way.
JobStatus: TypeAlias = Literal["idle", "waiting", "running"]

# A kind of job by name or, as 002 has it, by number.
JobTypeInput: TypeAlias = int | str

# How much a line matters, by name or by number.
LogLevel: TypeAlias = int | str

# See [`Misfire`].
MisfirePolicy: TypeAlias = Literal["once", "skip", "all"]

# What becomes of a run that no worker may have.
NoWorker: TypeAlias = Literal["fail", "wait"]

# A fire that finds another run of its job not over.
Overlap: TypeAlias = Literal["skip", "queueOne", "queueAll", "replace", "allow"]

# One block, or as many as were asked for.
Polled: TypeAlias = Union["FinishedBlock", "dict[str, Any]"]

# Key and value texts. Keys are found whatever their case, with underscores or without (`NODE_COUNT` is
# `NodeCount`).
Properties: TypeAlias = dict[str, str]

# Requests: alone, or as a member of an object.
PushInput: TypeAlias = Union["list[RequestInput]", "dict[str, Any]"]

# What requests are listed by.
RequestState: TypeAlias = Literal["failed"]

# Where a run is.
RunState: TypeAlias = Literal["pending", "scheduled", "running", "failed", "success", "stopped"]

# Which worker gets a task, of those that may have it and have a free place.
Strategy: TypeAlias = Literal["roundRobin", "random", "leastLoaded", "leastRecentlyUsed", "hash", "sticky", "failover", "broadcast", "shard"]

# Where an attempt is.
TaskState: TypeAlias = Literal["accepted", "refused", "running", "success", "failed", "cancelled"]

# From the broker to a worker.
ToWorker: TypeAlias = dict[str, Any]

# Why a site may not be asked at present.
Why: TypeAlias = Literal["delay", "slowAnswers", "connections", "retryAfter", "tooManyRequests", "timeouts", "refused", "serverErrors", "dns", "tls", "operator"]

# The operator's word on a worker. It outlives the worker's connections and the broker.
WorkerState: TypeAlias = Literal["enabled", "disabled", "draining", "kicked"]


@dataclass(kw_only=True)
class AckCall(Model):
    """The body of an acknowledgement: blocks that are done, and what follows from them."""

    #: The blocks.
    blocks: list[str] | None = None
    #: The requests that follow.
    requests: list[RequestInput] | None = None


@dataclass(kw_only=True)
class ActorOutput(Model):
    """An actor."""

    #: Milliseconds since it was (re)started.
    age: int
    #: registry, dispatcher, run, node, worker, session, persistence …
    kind: str
    #: Messages handled, all its lives together.
    messages_handled: int
    #: Which one.
    name: str
    #: Messages that wait.
    queue_depth: int
    #: How often it was rebuilt.
    restarts: int
    #: running, restarting, stopped …
    state: str
    #: The name that people gave to its node, if it is one.
    label: str | None = None
    #: The last thing that went wrong.
    last_error: str | None = None
    #: The actor that watches over it; none for the root.
    parent: str | None = None


@dataclass(kw_only=True)
class AlertDeliveryOutput(Model):
    """An event on its way to one channel."""

    #: Attempts so far.
    attempts: int
    #: The channel.
    channel_id: str
    #: Events that its message stands for.
    count: int
    #: waiting, sending, done, failed (given up), merged (told with another one).
    state: str
    #: When it was done or given up.
    finish_time: datetime | None = None
    #: What went wrong last.
    last_error: str | None = None
    #: The event whose message it is told with.
    merged_into: int | None = None
    #: When it is tried next, while it waits.
    next_at: datetime | None = None


@dataclass(kw_only=True)
class AlertEventOutput(Model):
    """An event, and who was told of it."""

    #: When.
    at: datetime
    #: Its ways to the channels.
    deliveries: list[AlertDeliveryOutput]
    #: failed, missed, late, silent, recovered, disabled, test.
    event: str
    #: Counts the events.
    id: int
    #: Its group.
    group: str | None = None
    #: The job.
    job_id: str | None = None
    #: Its name.
    job_name: str | None = None
    #: Why.
    reason: str | None = None
    #: The run.
    run_id: str | None = None


@dataclass(kw_only=True)
class AlertEventOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[AlertEventOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class AlertInput(Model):
    """A channel as it is created or changed; what is absent in a change stays as it is."""

    #: What it wants to hear of.
    filter: Filter | None = None
    #: Whether it is told anything.
    is_enabled: bool | None = None
    #: webhook or mail.
    kind: ChannelKind | None = None
    #: 1 to 50 characters, unique.
    name: str | None = None
    #: Signs what is sent to a webhook; at most 500 bytes. Empty: the stored one stays.
    secret: str | None = None
    #: The URL of a webhook, or an address.
    target: str | None = None
    #: The version that the change was made for.
    version: int | None = None


@dataclass(kw_only=True)
class AlertOutput(Model):
    """A channel."""

    #: When it was made.
    creation_time: datetime
    #: What it wants to hear of.
    filter: Filter
    #: What is sent is signed. The secret itself is never shown.
    has_secret: bool
    #: Its id.
    id: str
    #: Whether it is told anything.
    is_enabled: bool
    #: webhook or mail.
    kind: ChannelKind
    #: Its name.
    name: str
    #: Stands for its id where 64 bits have to do.
    number: str
    #: The URL of a webhook, or an address.
    target: str
    #: When it was last changed.
    update_time: datetime
    #: Counts the changes.
    version: int
    #: Who made it.
    create_by: str | None = None
    #: Who changed it last.
    update_by: str | None = None


@dataclass(kw_only=True)
class AlertTestOutput(Model):
    """What came of a test."""

    #: The event among the others.
    id: int
    #: The other side took it.
    ok: bool
    #: Milliseconds that it took.
    time: int
    #: What went wrong.
    error: str | None = None


@dataclass(kw_only=True)
class AskInput(Model):
    """When a run wants its job to run next. One of the two."""

    #: At this instant; one that is past means now.
    at: datetime | None = None
    #: So many milliseconds from now.
    in_: int | None = None


@dataclass(kw_only=True)
class BackfillFire(Model):
    """One instant of a backfill."""

    #: The instant.
    planned_at: datetime
    #: Its run.
    identity: str | None = None


@dataclass(kw_only=True)
class BackfillInput(Model):
    """A past range that is to be run again."""

    #: The first instant that is meant.
    from_: datetime
    #: The last instant that is meant.
    to: datetime
    #: Only say which.
    dry_run: bool | None = None
    #: At most so many runs, 1 to 1,000; 100 if absent.
    limit: int | None = None


@dataclass(kw_only=True)
class BackfillOutput(Model):
    """What a backfill did."""

    #: Instants in the range that had made a run before.
    already: int
    #: The instants, and the runs that they made (none in a dry run).
    fires: list[BackfillFire]
    #: There are more in the range than the limit.
    more: bool


@dataclass(kw_only=True)
class Blackout(Model):
    """A time at which a job does not run: between two instants (`from`, `to`), on whole days (`dates`), or every
    day or on some weekdays between two times of the day (`start`, `end`, `days`). Days and times are those of
    the job's zone.
    """

    #: Whole days, as `2026-12-25`.
    dates: list[str] | None = None
    #: The weekdays on which it begins, as `MON`; all if there are none.
    days: list[str] | None = None
    #: The time of the day at which it ends; before `start`: on the next day.
    end: str | None = None
    #: The first instant.
    from_: datetime | None = None
    #: What it is called in the ledger.
    name: str | None = None
    #: A time of the day, as `22:00`.
    start: str | None = None
    #: The first instant that is not meant any more.
    to: datetime | None = None


@dataclass(kw_only=True)
class BlockCounts(Model):
    """Blocks by where they are."""

    #: With results that no worker has acknowledged.
    answered: int
    #: For a node.
    ready: int
    #: All.
    total: int
    #: At a node; absent where that is not known, and then they count as ready.
    using: int | None = None


@dataclass(kw_only=True)
class BlockForNode(Model):
    """A block as it is sent to a node: the seeds' *BlockDto*."""

    #: The hand-out, from 1. Goes back with the results.
    attempt: int
    #: Its id.
    block_id: str
    #: What the cookies are for.
    cookie_mode: CookieMode
    #: The run's epoch. Goes back with the results.
    epoch: int
    #: Its run.
    identity: str
    #: The most bytes of a body, after decompression.
    max_body: int
    #: Redirects that are followed; 0 returns the redirect itself.
    max_redirects: int
    #: What holds for the whole site.
    site: SiteSettings
    #: Milliseconds between the starts of two requests of this run to one host on one node; 0 for none.
    sleep_time: int
    #: Requests of one block that are downloaded at the same time.
    thread_num: int
    #: Milliseconds that one try may take, body included.
    timeout: int
    #: A regular expression; a body that matches it makes the node change its IP address and ask again.
    change_ip_pattern: str | None = None
    #: A `Cookie` header: `name=value; name=value`.
    cookies: str | None = None
    #: Earlier hand-outs that were lost, so that its requests may have been sent. Absent: an older broker, which
    #: counts in `attempt` those that gave the block back as well.
    lost: int | None = None
    #: The requests go to a site that must not be asked faster than this. Without it there is no limit but the
    #: settings'.
    pace: Pace | None = None
    #: The node may report in parts: some requests now, others later. See [`BlockReport::part`].
    parts: bool | None = None
    #: The requests, a JSON array; none in a binary frame.
    requests: list[Request] | None = None
    #: Tries after the first one; none: the agent's own setting.
    retry_download: int | None = None
    #: Where the run began: the origins of its first requests. None: an older broker, which does not say.
    start_origins: list[str] | None = None


@dataclass(kw_only=True)
class BlockOutput(Model):
    """A block."""

    #: A worker has acknowledged its results.
    acknowledged: bool
    #: Hand-outs so far.
    attempt: int
    #: Its id.
    block_id: str
    #: When it was made.
    creation_time: datetime
    #: … and not.
    error: int
    #: Its run.
    identity: str
    #: Requests in it.
    requests: int
    #: ready, using, success, failed, retry.
    state: str
    #: … answered well.
    success: int
    #: What kept it from being downloaded as a whole.
    exception: str | None = None
    #: When its results came.
    finish_time: datetime | None = None
    #: When its node must have been heard of.
    lease_until: datetime | None = None
    #: Who has it or had it last.
    node_id: str | None = None
    #: Its name, or the last digits of its id.
    node_name: str | None = None


@dataclass(kw_only=True)
class BlockOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[BlockOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class BlockReport(Model):
    """The body of `POST /node/block` as JSON: the seeds' *BlockResponse*."""

    #: The block.
    block_id: str
    #: Its run.
    identity: str
    #: Who reports.
    node_id: str
    #: As it came with the block; absent: the current one is meant.
    attempt: int | None = None
    #: Requests that the node gives back without a result.
    back: list[GivenBack] | None = None
    #: As it came with the block; absent: the current one is meant.
    epoch: int | None = None
    #: What kept the block from being downloaded as a whole.
    exception: str | None = None
    #: More reports follow: the requests that are not in this one stay with the node.
    part: bool | None = None
    #: The requests, each with what became of it.
    results: list[RequestReport] | None = None
    #: What the node found about the site of the block: see [`SiteNews`].
    site: SiteNews | None = None


@dataclass(kw_only=True)
class BrokerOutput(Model):
    """A broker's process."""

    #: Its id, a new one at each start.
    id: str
    #: It is the one that answers.
    is_this: bool
    #: When it was seen last, by its own clock.
    last_seen: datetime
    #: What it is at present.
    role: BrokerRole
    #: When it started, by its own clock.
    started_at: datetime
    #: Where clients find it.
    url: str
    #: The program's version.
    version: str
    #: Since when it leads, by its own clock.
    leads_since: datetime | None = None
    #: The leader's term: counted up by each that takes over.
    term: int | None = None


@dataclass(kw_only=True)
class Callback(Model):
    """The request of a callback job. URL, header values and body may hold placeholders: `{runId}`, `{jobId}`,
    `{jobName}`, `{fireTime}`, `{attempt}`, `{traceId}` and `{arguments}`.
    """

    #: An absolute http or https URL.
    url: str
    #: Sent as it is, once its placeholders are filled in; `application/json` unless a header says otherwise.
    body: str | None = None
    #: Statuses that count as success; 200 to 299 if there are none.
    expect: list[int] | None = None
    #: Sent along.
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

    #: Sent as it is, once its placeholders are filled in; `application/json` unless a header says otherwise.
    body: str | None = None
    #: Statuses that count as success; 200 to 299 if there are none.
    expect: list[int] | None = None
    #: Sent along.
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
    """Requests of a run, by what became of them. `left = total - success - error` at every moment."""

    #: Answered with a status of 400 and above, or not at all.
    error: int
    #: Not yet downloaded.
    left: int
    #: Answered by their site with a status below 400, body and all.
    success: int
    #: Taken into the run.
    total: int


@dataclass(kw_only=True)
class DisableInput(Model):
    """Why a job is disabled, and what becomes of its runs."""

    #: `drain` (usual): runs at work go on. `stop`: they are stopped.
    mode: str | None = None
    #: For people.
    reason: str | None = None


@dataclass(kw_only=True)
class DiscardInput(Model):
    """Which pending requests of a run are to be discarded. At least one condition, or `all`."""

    #: Without a condition: all that are pending.
    all: bool | None = None
    #: Only count them.
    dry_run: bool | None = None
    #: At most so many, 1 to 10,000; 1,000 if absent.
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
    """A job as a file keeps it: what a team writes, and nothing that the broker adds."""

    #: Whether it starts.
    is_enabled: bool
    #: block, task, application or callback.
    job_type: JobKind
    #: Its name: by this it is found again.
    name: str
    #: Higher goes first.
    priority: int
    #: Everything else, by key.
    properties: dict[str, str]
    #: The request of a callback job. A secret is empty here: at an import the stored one stays.
    callback: Callback | None = None
    #: For people.
    description: str | None = None
    #: Why not.
    disabled_reason: str | None = None
    #: The group that it belongs to.
    group: str | None = None
    #: Its rules.
    policies: Policies | None = None
    #: When it runs by itself.
    schedule: Schedule | None = None
    #: Jobs that begin when a run of this one ends.
    successors: list[Successor] | None = None
    #: The task of a task job.
    task: TaskSettings | None = None


@dataclass(kw_only=True)
class FailedRequest(Model):
    """A request of a run that failed."""

    #: The block that it was in.
    block_id: str
    #: The request.
    request_id: str
    #: The HTTP status; 0 if there was no answer.
    status: int
    #: How often it was tried.
    tries: int
    #: Its URL as it was pushed.
    url: str
    #: When its block was reported.
    finish_time: datetime | None = None
    #: Why there is no answer, or not a whole one; absent: the site answered with the status.
    kind: FetchErrorKind | None = None
    #: The same in words.
    message: str | None = None
    #: Absent: GET.
    method: str | None = None
    #: The node that reported it; absent if the broker itself did.
    node_id: str | None = None
    #: The name of the node.
    node_name: str | None = None
    #: It was queued once more, under this id.
    requeued_as: str | None = None


@dataclass(kw_only=True)
class FailedRequestPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[FailedRequest]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class FetchError(Model):
    """Why a request was not answered, or not wholly."""

    #: One of a closed list.
    kind: FetchErrorKind
    #: In words.
    message: str
    #: Asked again later or elsewhere it may well be answered.
    retryable: bool | None = None


@dataclass(kw_only=True)
class Filter(Model):
    """What a channel wants to hear of. An empty list means all."""

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
    #: What kept it from being downloaded as a whole.
    exception: str | None = None


@dataclass(kw_only=True)
class FireOutput(Model):
    """A row of the ledger of fires."""

    #: When it was decided.
    creation_time: datetime
    #: How many instants the row covers: 1, unless they were missed by the hundred.
    instants: int
    #: The job.
    job_id: str
    #: plan, asked, silence, outside, backfill.
    kind: str
    #: The planned instant, or the first of several.
    planned_at: datetime
    #: fired, skipped, missed, merged.
    verdict: str
    #: The version of the job that it was decided under.
    version: int
    #: The run that it made, or was merged into.
    identity: str | None = None
    #: The last of several.
    planned_until: datetime | None = None
    #: The same for people.
    reason: str | None = None
    #: The rule that decided.
    rule: str | None = None


@dataclass(kw_only=True)
class FireOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[FireOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class GivenBack(Model):
    """A request that a node gives back without a result. It waits in the queue of its run again."""

    #: The request.
    request_id: str
    #: What was wrong the last time.
    error: FetchError | None = None
    #: How often it was tried so far, earlier nodes' tries included.
    tries: int | None = None


@dataclass(kw_only=True)
class GroupInput(Model):
    """A group as it is created or changed."""

    #: At most 500 characters.
    description: str | None = None
    #: At most 50 characters, unique.
    name: str | None = None


@dataclass(kw_only=True)
class GroupOutput(Model):
    """A group: a name that jobs and nodes go by."""

    #: When it was made.
    creation_time: datetime
    #: Its id.
    id: str
    #: Jobs in it.
    jobs: int
    #: Its name.
    name: str
    #: Nodes that said they are in it.
    nodes: int
    #: Stands for its id where 64 bits have to do.
    number: str
    #: When it was last changed.
    update_time: datetime
    #: Who made it.
    create_by: str | None = None
    #: For people.
    description: str | None = None
    #: Who changed it last.
    update_by: str | None = None


@dataclass(kw_only=True)
class GroupOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[GroupOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class GroupSwitched(Model):
    """What became of the jobs of a group that was enabled or disabled."""

    #: Those that were changed.
    changed: int
    #: Jobs in it.
    jobs: int


@dataclass(kw_only=True)
class HandsInput(Model):
    """The tasks that a worker has in hand."""

    #: All of them.
    tasks: list[TaskRefInput]


@dataclass(kw_only=True)
class HeartbeatCall(Model):
    """The body of `POST /node/heartbeat`: a node without a socket says who and how it is, and gets a block or
    nothing. The names of both revisions of the seeds are taken, in camel or Pascal case.
    """

    #: The node.
    node_id: str
    #: Percent of all processors.
    cpu: int | None = None
    #: MB.
    free_memory: int | None = None
    #: Its group.
    group: str | None = None
    #: The blocks that it works on, or whose results are not yet taken. Absent: it does not say.
    holding: list[Holding] | None = None
    #: Where it says it is; else where the call came from.
    ip: str | None = None
    #: MB.
    memory: int | None = None
    #: Its name, for people; without one it keeps the name that it has.
    name: str | None = None
    #: Console or Web.
    node_type: str | None = None
    #: Its operating system.
    operating_system: str | None = None
    #: Blocks and programs at work.
    process_count: int | None = None
    #: Processors.
    processor_count: int | None = None
    #: The programs that it runs, or whose end is not yet taken. Absent: it does not say.
    programs: list[ProgramRef] | None = None
    #: Runs that it works for already: it wants none of these.
    runnings: list[str] | None = None


@dataclass(kw_only=True)
class HeldOutput(Model):
    """A hold: no run begins a request to the site."""

    #: Until when.
    until: datetime
    #: Why; `operator`: somebody asked for it.
    why: Why


@dataclass(kw_only=True)
class HoldInput(Model):
    """How long a site is held: one of the two."""

    #: For so many milliseconds, at most 49 days.
    for_: int | None = None
    #: Until this instant, at most 49 days from now.
    until: datetime | None = None


@dataclass(kw_only=True)
class Holding(Model):
    """A block in the hands of a node."""

    #: The hand-out.
    attempt: int
    #: The block.
    block_id: str
    #: The epoch of the hand-out.
    epoch: int
    #: The run.
    identity: str


@dataclass(kw_only=True)
class ImportFile(Model):

    #: Jobs.
    jobs: list[JobInput]


@dataclass(kw_only=True)
class ImportedJob(Model):
    """What bulk import did with one job."""

    #: created, updated, unchanged.
    action: str
    #: Its name.
    name: str
    #: Its id; none for one that would be created by a dry run.
    id: str | None = None


@dataclass(kw_only=True)
class InstanceOutput(Model):
    """An instance of a run."""

    #: The attempt, from 1.
    attempt: int
    #: Which, from 0. The lines of its output have the sources `<instance>:stdout` and `<instance>:stderr`.
    instance: int
    #: Lines of a program's output that were taken, whether they are kept or not; of a task 0.
    lines: int
    #: Where it is: scheduled, running, success, failed, stopped.
    state: RunState
    #: Why it is asked to end.
    exit_reason: str | None = None
    #: When it ended.
    finish_time: datetime | None = None
    #: The node or worker that has it, or had it.
    peer: str | None = None
    #: Its name, or the last digits of its id.
    peer_name: str | None = None
    #: Why.
    reason: str | None = None
    #: What it brought: of a program its code or signal, its times and its peak of memory.
    result: Any = None
    #: When it began.
    start_time: datetime | None = None


@dataclass(kw_only=True)
class InstanceOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[InstanceOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class JobActivity(Model):
    """What the runs of a job came to, as far as they are kept."""

    #: Its runs.
    runs: int
    #: Whether a run of it is under way.
    status: JobStatus
    #: Milliseconds that its last runs took on average, of those that ended well: at most the last 100 of them.
    average_ms: int | None = None
    #: The newest run that is over.
    last_run: LastRun | None = None
    #: The oldest run that is not over: the one that is under way or comes next.
    open_run: str | None = None
    #: The worker that has that run, else the one that had the last run.
    worker_id: str | None = None


@dataclass(kw_only=True)
class JobChange(Model):
    """A change of a job: who, when, what to."""

    #: created, updated, enabled, disabled, deleted, restored.
    action: str
    #: When.
    at: datetime
    #: Counts the changes of all jobs.
    id: int
    #: The job as it was from then on, without secrets.
    job: Any
    #: The job.
    job_id: str
    #: The version that it made.
    version: int
    #: The token's role, if tokens are in use; `broker` for what it does by itself.
    by: str | None = None


@dataclass(kw_only=True)
class JobChangePage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[JobChange]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class JobDataInput(Model):
    """Something else for the next run of a job."""

    #: Any JSON, at most 256 KiB.
    data: Any


@dataclass(kw_only=True)
class JobDataOutput(Model):
    """What the last run of a job left for the next one."""

    #: Any JSON.
    data: Any
    #: When.
    update_time: datetime
    #: The run that left it; absent: somebody put it there by hand.
    identity: str | None = None
    #: Who put it there by hand: the role of a token, if tokens are in use.
    update_by: str | None = None


@dataclass(kw_only=True)
class JobInput(Model):
    """A job as it is created or changed. Names of both revisions of the seeds are taken."""

    #: 002's column: the class of a block job, the program of an application. Kept as a property.
    application: str | None = None
    #: 002's column. Kept as a property.
    arguments: str | None = None
    #: The request of a callback job.
    callback: CallbackInput | None = None
    #: A shorter word for the program of an application job and its arguments, as one line; no shell reads it. It
    #: makes the job an application job, and is kept as the properties `Application` and `Arguments`.
    command: str | None = None
    #: A shorter word for a schedule of one cron expression; empty: by hand only.
    cron: str | None = None
    #: For people.
    description: str | None = None
    #: Why it is disabled, with `isEnabled` false.
    disabled_reason: str | None = None
    #: A group of this name; it is made if there is none. Empty: no group.
    group: str | None = None
    #: At creation, the id that it shall have; else one is made.
    id: str | None = None
    #: A shorter word for a schedule of one interval, in milliseconds; 0: once, then disabled.
    interval: int | None = None
    #: Whether a trigger starts it.
    is_enabled: bool | None = None
    #: `block`, `task`, `application` or `callback`; 002 counts the first two from 0.
    job_type: JobTypeInput | None = None
    #: Unique among the jobs; needed at creation.
    name: str | None = None
    #: What becomes of fires that are late or find it at work, and of runs that fail.
    policies: PoliciesInput | None = None
    #: Higher goes first.
    priority: int | None = None
    #: Everything else.
    properties: dict[str, str] | None = None
    #: When it runs by itself; an empty one: by hand only.
    schedule: ScheduleInput | None = None
    #: Jobs that begin when a run of this one ends; an empty list: none.
    successors: list[SuccessorInput] | None = None
    #: The task of a task job.
    task: TaskSettings | None = None
    #: At a change: the version that it was made for; another one is refused.
    version: int | None = None


@dataclass(kw_only=True)
class JobOutput(Model):
    """A job, and how it stands with its plan."""

    #: When it was created.
    creation_time: datetime
    #: For people.
    description: str | None
    #: Runs that failed one after the other, up to now.
    failures: int
    #: Runs that its plan has made.
    fires: int
    #: Its id.
    id: str
    #: Whether it was deleted; its history stays.
    is_deleted: bool
    #: Whether a trigger starts it.
    is_enabled: bool
    #: Its kind.
    job_type: JobKind
    #: Its name, unique among the jobs that are not deleted.
    name: str
    #: Stands for its id where 64 bits have to do.
    number: str
    #: Higher goes first.
    priority: int
    #: Everything else, by key. Keys that nobody knows are kept.
    properties: Properties
    #: When it was last changed.
    update_time: datetime
    #: Counts the changes; a change may name the version it was made for.
    version: int
    #: What its runs came to. Lists of jobs leave it out.
    activity: JobActivity | None = None
    #: The request of a callback job. Its secret is never shown.
    callback: Callback | None = None
    #: Who made it: the role of a token, if tokens are in use.
    create_by: str | None = None
    #: Its first cron expression.
    cron: str | None = None
    #: Why it is disabled, if somebody or something said so.
    disabled_reason: str | None = None
    #: The group that it belongs to.
    group: str | None = None
    #: The last planned instant that made a run.
    last_fire: datetime | None = None
    #: When it comes next; absent: not, or not until a run has ended.
    next_fire: datetime | None = None
    #: What becomes of fires that are late or find it at work, and of runs that fail.
    policies: Policies | None = None
    #: When it runs by itself.
    schedule: Schedule | None = None
    #: Jobs that begin when a run of this one ends.
    successors: list[Successor] | None = None
    #: The task of a task job.
    task: TaskSettings | None = None
    #: Who changed it last.
    update_by: str | None = None


@dataclass(kw_only=True)
class JobOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[JobOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class JobStatusOutput(Model):
    """What one node did for one run: the seeds' *JobStatus*."""

    #: Answered with a status of 400 and above, or not at all.
    error: int
    #: The run.
    identity: str
    #: The job.
    job_id: str
    #: Not yet downloaded.
    left: int
    #: Where the run is.
    status: RunState
    #: Answered by their site with a status below 400, body and all.
    success: int
    #: Taken into the run.
    total: int
    #: The node; none for the sum of all.
    node_id: str | None = None
    #: Its name, or the last digits of its id.
    node_name: str | None = None
    #: Its last report.
    update_time: datetime | None = None


@dataclass(kw_only=True)
class Keep(Model):
    """How much of a job's past is kept; what is absent, as the broker is set."""

    #: Milliseconds after their end.
    age: int | None = None
    #: Ended runs, the newest.
    runs: int | None = None


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
    #: Milliseconds between the two.
    took_ms: int | None = None


@dataclass(kw_only=True)
class Lateness(Model):
    """How late the fires of a job were, in milliseconds, of the latest at most 1,000."""

    #: Fires that were measured.
    count: int
    #: The latest one.
    max: int
    #: Half of them were no later.
    p50: int
    #: 99 of 100 were no later.
    p99: int


@dataclass(kw_only=True)
class LogAccepted(Model):
    """What became of lines that were sent."""

    #: Lines that are kept.
    accepted: int
    #: Lines that the log of the run has no room for.
    dropped: int


@dataclass(kw_only=True)
class LogInput(Model):
    """A line that a worker, or whoever carries a run out, has to say."""

    #: At most 8,192 bytes.
    text: str
    #: When; now if absent.
    at: datetime | None = None
    #: trace, debug, info, warning, error, critical, or 0 to 5 for the same; info if absent.
    level: LogLevel | None = None
    #: worker, stdout, stderr …: at most 50 characters; `worker` if absent.
    source: str | None = None


@dataclass(kw_only=True)
class LogLine(Model):
    """A line of a run's log."""

    #: When.
    at: datetime
    #: Counts the lines of all runs: give the last one back as `after`.
    id: int
    #: trace, debug, info, warning, error, critical.
    level: str
    #: broker, worker, stdout, stderr …
    source: str
    #: What.
    text: str


@dataclass(kw_only=True)
class LogPage(Model):
    """A part of a run's log."""

    #: The lines. Those with id 0 are told by the run's row: that it was made, that it began.
    items: list[LogLine]
    #: There are more lines now than the limit.
    more: bool
    #: Give it back as `after` for what follows.
    next: int
    #: Where the run is: once it is over there is nothing to wait for.
    state: RunState


@dataclass(kw_only=True)
class Misfire(Model):
    """Planned instants that passed while nobody looked, or that a broker was too busy for."""

    #: Milliseconds that a fire may be late and is still on time.
    grace: int
    #: With `all`: at most so many, the latest.
    limit: int
    #: What to do.
    policy: MisfirePolicy
    #: Milliseconds: what is older is missed whatever the policy.
    window: int


@dataclass(kw_only=True)
class MisfireInput(Model):
    """Planned instants that passed while nobody looked, or that a broker was too busy for."""

    #: Milliseconds that a fire may be late and is still on time.
    grace: int | None = None
    #: With `all`: at most so many, the latest.
    limit: int | None = None
    #: What to do.
    policy: MisfirePolicy | None = None
    #: Milliseconds: what is older is missed whatever the policy.
    window: int | None = None


@dataclass(kw_only=True)
class NextFire(Model):
    """When a job comes next."""

    #: Absent: not, or not until a run has ended.
    next_fire: datetime | None = None


@dataclass(kw_only=True)
class NodeLoad(Model):
    """How busy a node is."""

    #: Percent of all processors.
    cpu: int
    #: MB.
    free_memory: int
    #: Blocks and programs at work.
    process_count: int


@dataclass(kw_only=True)
class NodeOutput(Model):
    """A node."""

    #: When it was first seen.
    creation_time: datetime
    #: The group it belongs to.
    group: str
    #: Blocks in its hands.
    holding: int
    #: Where it is.
    ip_address: str
    #: It gets nothing new, and ends when it has nothing left.
    is_draining: bool
    #: The operator's word: whether it gets work.
    is_enabled: bool
    #: It is told to end.
    is_leaving: bool
    #: It is there.
    is_online: bool
    #: When it was last heard.
    last_online_time: datetime
    #: Blocks that it takes at once.
    max_process_count: int
    #: MB.
    memory: int
    #: Its name; the last 8 digits of its id if it has sent none.
    name: str
    #: Its id.
    node_id: str
    #: Console or Web.
    node_type: str
    #: Stands for its id where 64 bits have to do.
    number: str
    #: windows, linux …
    operating_system: str
    #: Processors.
    processor_count: int
    #: Programs that runs count on there.
    programs: int
    #: When; as long as nobody has, when it was first seen.
    update_time: datetime
    #: Who came first with it: the role of its token, if tokens are in use.
    create_by: str | None = None
    #: What it said last.
    load: NodeLoad | None = None
    #: Programs that it takes at once, as it said when it connected: 0 if it takes none at all; absent: it did
    #: not say.
    max_programs: int | None = None
    #: Why it is disabled, draining or leaving.
    reason: str | None = None
    #: Who said the last word on it.
    update_by: str | None = None


@dataclass(kw_only=True)
class NodeOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[NodeOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class NodeStatusOutput(Model):
    """What a node said of itself in one heartbeat."""

    #: Percent of all processors.
    cpu: int
    #: When it said so.
    creation_time: datetime
    #: MB.
    free_memory: int
    #: Blocks and programs at work.
    process_count: int


@dataclass(kw_only=True)
class NodeStatusOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[NodeStatusOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class Outcome(Model):
    """One request and its response as JSON."""

    #: The body in base64.
    content: str
    #: The headers of the answer.
    headers: list[tuple[str, str]]
    #: The request as it was pushed, unknown members and all.
    request: Request
    #: The request's id.
    request_id: str
    #: The HTTP status; 0 if there was no answer.
    status: int
    #: Milliseconds of the last try.
    time: int
    #: How often it was tried.
    tries: int
    #: Why there is no answer, or not a whole one.
    error: FetchError | None = None
    #: When the last try began, if its node said it.
    fetched_at: datetime | None = None
    #: The IP address that answered, if its node said it.
    remote_address: str | None = None
    #: The request that was answered, after redirects, if its node said it.
    sent: Sent | None = None
    #: Where the redirects led, if anywhere.
    target_url: str | None = None


@dataclass(kw_only=True)
class Pace(Model):
    """How fast a node may ask the site of a block. The site is the node's alone until the block is reported."""

    #: The most requests at once.
    connections: int
    #: Least milliseconds between the beginnings of two requests, first tries and later ones alike.
    delay: int
    #: Up to this many milliseconds more, by chance.
    jitter: int
    #: Milliseconds from now before the first request may begin.
    not_before: int
    #: Milliseconds without a word from the broker after which the node begins no more requests of this block: by
    #: then the site may be another node's.
    right: int
    #: The site: a host, a registrable domain or an IP address.
    site: str


@dataclass(kw_only=True)
class PackageOutput(Model):
    """A package that the broker keeps."""

    #: When it came first.
    creation_time: datetime
    #: Its media type.
    media_type: str
    #: SHA-256 of its bytes: 64 hexadecimal digits.
    sha256: str
    #: Bytes.
    size: int
    #: Where nodes get it: what the property `Package` of a job says.
    url: str
    #: Who brought it: the role of a token, if tokens are in use.
    create_by: str | None = None
    #: What it was called when it came first.
    name: str | None = None


@dataclass(kw_only=True)
class PackageOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[PackageOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


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
    """A list, and where it goes on."""

    #: The items.
    items: list[PendingRequest]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class Policies(Model):
    """The rules of one job. What is absent is as usual."""

    #: How much of its past is kept.
    keep: Keep | None = None
    #: Milliseconds after the planned instant at which a run that has not begun is worth an alert.
    late_after: int | None = None
    #: Runs that may fail one after the other; then the job is disabled.
    max_failures: int | None = None
    #: Planned instants that passed while nobody looked.
    misfire: Misfire | None = None
    #: A fire that finds another run of the job not over. Usual: `skip` for a job with triggers, `allow` for one
    #: without.
    overlap: Overlap | None = None
    #: A run that failed.
    retry: Retry | None = None
    #: Milliseconds without a run that ended well after which there is an alert.
    silent_after: int | None = None
    #: Milliseconds after its start at which an attempt of a run is ended as failed.
    timeout: int | None = None


@dataclass(kw_only=True)
class PoliciesInput(Model):
    """The rules of one job. What is absent is as usual."""

    #: How much of its past is kept.
    keep: Keep | None = None
    #: Milliseconds after the planned instant at which a run that has not begun is worth an alert.
    late_after: int | None = None
    #: Runs that may fail one after the other; then the job is disabled.
    max_failures: int | None = None
    #: Planned instants that passed while nobody looked.
    misfire: MisfireInput | None = None
    #: A fire that finds another run of the job not over. Usual: `skip` for a job with triggers, `allow` for one
    #: without.
    overlap: Overlap | None = None
    #: A run that failed.
    retry: RetryInput | None = None
    #: Milliseconds without a run that ended well after which there is an alert.
    silent_after: int | None = None
    #: Milliseconds after its start at which an attempt of a run is ended as failed.
    timeout: int | None = None


@dataclass(kw_only=True)
class PreviewFire(Model):
    """An instant that comes."""

    #: The instant.
    at: datetime
    #: plan, asked, silence.
    kind: str
    #: The same in the job's zone, with its offset.
    local: str
    #: The blackout that it falls into: it will make no run.
    blackout: str | None = None
    #: What the zone's change of offset made of it.
    note: str | None = None
    #: The trigger that names it, counted from 0.
    trigger: int | None = None


@dataclass(kw_only=True)
class PreviewInput(Model):
    """What a schedule would do: for a schedule that is not stored."""

    #: Fires after this instant; now if absent.
    after: datetime | None = None
    #: At most so many, 1 to 1,000; 5 if absent.
    count: int | None = None
    #: A shorter word for a schedule of one cron expression.
    cron: str | None = None
    #: The schedule.
    schedule: ScheduleInput | None = None


@dataclass(kw_only=True)
class PreviewOutput(Model):
    """What a schedule will do, as things stand."""

    #: The fires that come.
    fires: list[PreviewFire]
    #: What was understood of each cron expression: seven fields, weekdays counted from Sunday = 0.
    understood: list[str]
    #: The zone that local times are given in.
    zone: str
    #: More that is worth knowing: an interval that waits for the end of a run, a plan that ends.
    remarks: list[str] | None = None


@dataclass(kw_only=True)
class Problem(Model):
    """What went wrong, for a program (`type`, `status`, `field`) and for a person (`title`, `detail`)."""

    #: What is wrong this time.
    detail: str
    #: The HTTP status.
    status: int
    #: The same in words.
    title: str
    #: `/problems/` and a word that never changes.
    type: str
    #: The part of the input that is meant: `requests[3].url`.
    field: str | None = None


@dataclass(kw_only=True)
class ProgramRef(Model):
    """One program: an attempt of an instance of a run."""

    #: Counts the starts of the instance from 1.
    attempt: int
    #: The run.
    identity: str
    #: Which of its instances, from 0.
    instance: int


@dataclass(kw_only=True)
class Pushed(Model):
    """The answer to a push or an acknowledgement: it is on disk."""

    #: Requests taken.
    accepted: int
    #: Blocks of an acknowledgement that were acknowledged before.
    already: int
    #: The blocks that the requests went into.
    block_ids: list[str]
    #: Requests that the run had seen.
    duplicates: int
    #: Requests past the most that the run takes, in all or of their site.
    over_limit: int
    #: Requests deeper than the run goes.
    too_deep: int
    #: Requests with a URL that is too long, or whose path repeats itself.
    trapped: int


@dataclass(kw_only=True)
class Reason(Model):
    """Why."""

    #: For people.
    reason: str | None = None


@dataclass(kw_only=True)
class ReasonInput(Model):
    """Why an operator does something."""

    #: For people.
    reason: str | None = None


@dataclass(kw_only=True)
class RedriveInput(Model):
    """Which dead runs are to be run again: those that failed for good and that no other run repeats."""

    #: Only say which.
    dry_run: bool | None = None
    #: Only those made at this instant and later.
    from_: datetime | None = None
    #: Only those of jobs that are in this group now.
    group: str | None = None
    #: Only those of this job.
    job_id: str | None = None
    #: At most so many, 1 to 1,000; 100 if absent.
    limit: int | None = None
    #: Only those made at this instant and earlier.
    to: datetime | None = None


@dataclass(kw_only=True)
class RedriveJobInput(Model):
    """How the dead runs of a job are run again."""

    #: Only say which.
    dry_run: bool | None = None


@dataclass(kw_only=True)
class RedriveOutput(Model):
    """What was run again."""

    #: The dead runs that were found.
    dead: list[str]
    #: There are more dead runs than one call takes.
    more: bool
    #: The new runs, in the same order; in a dry run none.
    runs: list[str]


@dataclass(kw_only=True)
class RedrivenRun(Model):
    """What became of one dead run."""

    #: Its job.
    job_id: str
    #: The dead run.
    retry_of: str
    #: The run that repeats it.
    identity: str | None = None
    #: Why there is none.
    refused: str | None = None


@dataclass(kw_only=True)
class RedrivenRuns(Model):
    """What became of dead runs."""

    #: Dead runs that were found.
    found: int
    #: There are more than the limit.
    more: bool
    #: Those that are run again; in a dry run none.
    redriven: int
    #: Each of them.
    runs: list[RedrivenRun]


@dataclass(kw_only=True)
class Reported(Model):
    """The answer to a report that was taken: it is on disk."""

    #: The others.
    error: int
    #: Requests answered with a status below 400.
    success: int


@dataclass(kw_only=True)
class Request(Model):
    """A request as a worker writes it and a node reads it. Members that nobody knows travel along and come back."""

    #: `http` or `https`.
    url: str
    #: A body as text.
    body: str | None = None
    #: Links between it and a first request.
    depth: int | None = None
    #: A deliberate repetition: it is not compared with what the run has seen.
    dont_filter: bool | None = None
    #: A character encoding that is known better than the page knows.
    encoding: str | None = None
    #: Headers of this request.
    headers: dict[str, str] | None = None
    #: Whether it may be sent more than once. Absent: if its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE.
    idempotent: bool | None = None
    #: What makes it unique in its run, instead of method, URL and body.
    key: str | None = None
    #: The worker's own; handed back as it is.
    meta: Any = None
    #: GET if it is not said.
    method: str | None = None
    #: From -100 to 100: a higher one is dispatched first; 0 if it is not said.
    priority: int | None = None
    #: A proxy for this request, instead of the job's.
    proxy: str | None = None
    #: Given by the broker; what is sent here is not kept.
    request_id: str | None = None
    #: Given by the broker: how often nodes tried it that gave it back. What is sent here is not kept.
    tries: int | None = None


@dataclass(kw_only=True)
class RequestInput(Model):
    """A request as a worker writes it and a node reads it. Members that nobody knows travel along and come back."""

    #: `http` or `https`.
    url: str
    #: A body as text.
    body: str | None = None
    #: Links between it and a first request.
    depth: int | None = None
    #: A deliberate repetition: it is not compared with what the run has seen.
    dont_filter: bool | None = None
    #: A character encoding that is known better than the page knows.
    encoding: str | None = None
    #: Headers of this request.
    headers: dict[str, str] | None = None
    #: Whether it may be sent more than once. Absent: if its method is GET, HEAD, OPTIONS, TRACE, PUT or DELETE.
    idempotent: bool | None = None
    #: What makes it unique in its run, instead of method, URL and body.
    key: str | None = None
    #: The worker's own; handed back as it is.
    meta: Any = None
    #: GET if it is not said.
    method: str | None = None
    #: From -100 to 100: a higher one is dispatched first; 0 if it is not said.
    priority: int | None = None
    #: A proxy for this request, instead of the job's.
    proxy: str | None = None
    #: Given by the broker; what is sent here is not kept.
    request_id: Any = None
    #: Given by the broker: how often nodes tried it that gave it back. What is sent here is not kept.
    tries: int | None = None


@dataclass(kw_only=True)
class RequestReport(Model):
    """What became of one request, in a [`BlockReport`]."""

    #: The request.
    request_id: str
    #: The body in base64.
    content: str | None = None
    #: Why there is no answer, or not a whole one.
    error: FetchError | None = None
    #: When the last try began.
    fetched_at: datetime | None = None
    #: The headers of the answer, in its order.
    headers: list[tuple[str, str]] | None = None
    #: The HTTP status; 0 or absent if there was no answer.
    status: int | None = None
    #: Where the redirects led.
    target_url: str | None = None
    #: The body as text, for who has no bytes.
    text: str | None = None
    #: Milliseconds of the last try.
    time: int | None = None
    #: How often it was tried.
    tries: int | None = None


@dataclass(kw_only=True)
class RequeueInput(Model):
    """Which failed requests of a run are to be queued once more; all, if nothing is said."""

    #: Only count them.
    dry_run: bool | None = None
    #: Only those that failed for this reason.
    kind: FetchErrorKind | None = None
    #: At most so many, 1 to 10,000; 1,000 if absent.
    limit: int | None = None
    #: Only those to this host or site.
    site: str | None = None
    #: Only those with this HTTP status; 0: those without an answer.
    status: int | None = None


@dataclass(kw_only=True)
class Requeued(Model):
    """What became of failed requests that were to be queued once more."""

    #: Failed requests that were found and had not been queued once more before.
    found: int
    #: There are more than the limit, or more blocks than one call looks at: call again.
    more: bool
    #: Those that are past the most that the run takes.
    over_limit: int
    #: Those that are queued now; in a dry run none.
    queued: int


@dataclass(kw_only=True)
class Retry(Model):
    """A run that failed is tried again, under the same identity."""

    #: Milliseconds before the second attempt.
    delay: int
    #: By which the delay grows from attempt to attempt.
    factor: float
    #: The part of the delay, 0 to 1, that chance may add or take.
    jitter: float
    #: Attempts after the first.
    limit: int
    #: Milliseconds that no delay exceeds.
    max_delay: int


@dataclass(kw_only=True)
class RetryInput(Model):
    """A run that failed is tried again, under the same identity."""

    #: Milliseconds before the second attempt.
    delay: int | None = None
    #: By which the delay grows from attempt to attempt.
    factor: float | None = None
    #: The part of the delay, 0 to 1, that chance may add or take.
    jitter: float | None = None
    #: Attempts after the first.
    limit: int | None = None
    #: Milliseconds that no delay exceeds.
    max_delay: int | None = None


@dataclass(kw_only=True)
class RunOutput(Model):
    """A run."""

    #: Counts its attempts from 1.
    attempt: int
    #: Blocks handed out so far.
    block_times: int
    #: Blocks by where they are.
    blocks: BlockCounts
    #: The class; for a callback the method and the URL.
    class_name: str
    #: When it was made.
    creation_time: datetime
    #: Answered with a status of 400 and above, or not at all.
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
    #: Stands for its id where 64 bits have to do.
    number: str
    #: Higher goes first.
    priority: int
    #: URLs that it has seen, and the bytes of memory this takes.
    seen: int
    #: Its worker has pushed the first requests.
    start_returned: bool
    #: Where it is.
    state: RunState
    #: Answered by their site with a status below 400, body and all.
    success: int
    #: Taken into the run.
    total: int
    #: The last of its times.
    update_time: datetime
    #: The run of another job whose end began it.
    after: str | None = None
    #: Blocks at nodes now; absent where that is not known: while the run is loaded, and on a broker that stands
    #: by.
    consuming: int | None = None
    #: Who made it: the role of the token that triggered it by hand, `scheduler`, or `workflow` if the end of
    #: another run did.
    create_by: str | None = None
    #: When it ended.
    finish_time: datetime | None = None
    #: It waits until then for its next attempt.
    not_before: datetime | None = None
    #: Of a block run that was paused: since when it hands out no blocks. Absent: it does, or the run is over.
    paused_at: datetime | None = None
    #: The instant that it was planned for.
    planned_at: datetime | None = None
    #: Of a task at work: 0 to 100.
    progress: int | None = None
    #: What it is at, in words.
    progress_text: str | None = None
    #: Why.
    reason: str | None = None
    #: What it brought: of a callback, the answer.
    result: Any = None
    #: The run that it repeats.
    retry_of: str | None = None
    #: Bytes; absent as `consuming`.
    seen_bytes: int | None = None
    #: When its first attempt began.
    start_time: datetime | None = None
    #: W3C trace id: 32 hexadecimal digits.
    trace_id: str | None = None
    #: Who stopped it: the role of a token, or `broker`.
    update_by: str | None = None
    #: The worker that carries it out; after its end the one that carried out its last attempt. Absent of
    #: programs, callbacks and runs on several workers, whose instances tell.
    worker_id: str | None = None


@dataclass(kw_only=True)
class RunOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[RunOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class RunSiteOutput(Model):
    """A site of a run."""

    #: Blocks of the run to this site that are at nodes.
    at_nodes: int
    #: Requests at once.
    connections: int
    #: Milliseconds between two requests; 0: it has no pace.
    delay: int
    #: Its name.
    name: str
    #: Blocks of the run that wait for the site.
    pending: int
    #: Absent: it is not held.
    held: HeldOutput | None = None
    #: When the next request may begin; absent: at once, unless it is another run's turn.
    next_at: datetime | None = None


@dataclass(kw_only=True)
class RunSiteOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[RunSiteOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class Schedule(Model):
    """When a job runs. Without a trigger: by hand only, or when its last run asked for it."""

    #: Any of them makes the job run; an instant that two of them name counts once.
    triggers: list[Trigger]
    #: Times at which it does not run.
    blackouts: list[Blackout] | None = None
    #: How numbers of weekdays are counted: `crontab` (0 and 7 are Sunday) or `quartz` (1 is Sunday).
    dialect: Dialect | None = None
    #: Nothing after this instant.
    end_at: datetime | None = None
    #: What becomes of a time that comes twice: `first`, `second` or `both`.
    fold: FoldRule | None = None
    #: What becomes of a time that a zone leaves out: `skip`, `after` or `shift`. See docs/operations.md for the
    #: default.
    gap: GapRule | None = None
    #: Milliseconds after its last fire at which it runs at the latest, whatever a run asked for.
    longest_silence: int | None = None
    #: No more runs than this by plan.
    max_fires: int | None = None
    #: Nothing before this instant.
    start_at: datetime | None = None
    #: The IANA name of the time zone that cron and blackouts are meant in; UTC if absent.
    zone: str | None = None


@dataclass(kw_only=True)
class ScheduleInput(Model):
    """When a job runs. Without a trigger: by hand only, or when its last run asked for it."""

    #: Times at which it does not run.
    blackouts: list[Blackout] | None = None
    #: How numbers of weekdays are counted: `crontab` (0 and 7 are Sunday) or `quartz` (1 is Sunday).
    dialect: Dialect | None = None
    #: Nothing after this instant.
    end_at: datetime | None = None
    #: What becomes of a time that comes twice: `first`, `second` or `both`.
    fold: FoldRule | None = None
    #: What becomes of a time that a zone leaves out: `skip`, `after` or `shift`. See docs/operations.md for the
    #: default.
    gap: GapRule | None = None
    #: Milliseconds after its last fire at which it runs at the latest, whatever a run asked for.
    longest_silence: int | None = None
    #: No more runs than this by plan.
    max_fires: int | None = None
    #: Nothing before this instant.
    start_at: datetime | None = None
    #: Any of them makes the job run; an instant that two of them name counts once.
    triggers: list[Trigger] | None = None
    #: The IANA name of the time zone that cron and blackouts are meant in; UTC if absent.
    zone: str | None = None


@dataclass(kw_only=True)
class Sent(Model):
    """A request as the agent sent it to the URL that answered."""

    #: The headers.
    headers: list[tuple[str, str]]
    #: The method.
    method: str


@dataclass(kw_only=True)
class SettledTask(Model):
    """What became of the last report of an attempt."""

    #: The attempt.
    attempt: int
    #: The run.
    identity: str
    #: Which of its instances.
    instance: int | None = None
    #: Why it changed nothing, if it did not.
    refused: str | None = None


@dataclass(kw_only=True)
class SiteNews(Model):
    """What a node found about the site of a block, for its pace."""

    #: Milliseconds since the last request to the site began.
    last_began: int | None = None
    #: Milliseconds from now for which the site is not to be asked: what its last `Retry-After` said.
    retry_after: int | None = None


@dataclass(kw_only=True)
class SiteOutput(Model):
    """A site, as the broker knows it."""

    #: Failures in a row, halved by each success.
    failures: int
    #: Its name: a host, a domain or an address; an origin where it has no pace.
    name: str
    #: Milliseconds between two requests; absent: no run has asked for a turn since the broker began.
    delay: int | None = None
    #: Absent: it is not held.
    held: HeldOutput | None = None
    #: When the next request may begin; absent: at once.
    next_at: datetime | None = None
    #: The run whose turn it is.
    run: str | None = None


@dataclass(kw_only=True)
class SiteOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[SiteOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class SiteSettings(Model):
    """What holds for all requests of a run to its site."""

    #: The character encoding of its pages, where it is known better than its pages know.
    encoding: str | None = None
    #: Headers for each request to its hosts that does not set them itself.
    headers: dict[str, str] | None = None
    #: Where the job's headers and cookies go to: `example.com`, `*.example.com`, `host:port`, `*`. None: where
    #: the run began.
    hosts: list[str] | None = None
    #: A proxy for all requests: `http://`, `https://`, `socks5://` (the node resolves names) or `socks5h://`
    #: (the proxy does).
    proxy: str | None = None
    #: The `User-Agent`.
    user_agent: str | None = None


@dataclass(kw_only=True)
class StartReturned(Model):
    """The body of a `start-returned`."""

    #: Why there are none. The run fails.
    error: str | None = None


@dataclass(kw_only=True)
class StartRun(Model):
    """The order to carry out a run."""

    #: Counts the attempts of the run from 1.
    attempt: int
    #: The class that is meant.
    class_name: str
    #: The run.
    identity: str
    #: Its job.
    job_id: str
    #: The job's properties.
    properties: dict[str, str]
    #: The first requests were pushed by a worker before: go on with the results.
    start_returned: bool
    #: What the trigger or the job said.
    arguments: str | None = None
    #: The instant that the run was planned for; none if it was triggered by hand.
    planned_at: datetime | None = None
    #: W3C trace id: 32 hexadecimal digits.
    trace_id: str | None = None


@dataclass(kw_only=True)
class Successor(Model):
    """A job that begins when a run of another one ends."""

    #: Which: its name or its id.
    job: str
    #: After which ends.
    on: AfterEnd


@dataclass(kw_only=True)
class SuccessorInput(Model):
    """A job that begins when a run of another one ends."""

    #: Which: its name or its id.
    job: str
    #: After which ends.
    on: AfterEnd | None = None


@dataclass(kw_only=True)
class TaskError(Model):
    """Why a task failed."""

    #: In words.
    message: str
    #: It would fail again: no other attempt is made.
    permanent: bool | None = None
    #: Where in the program.
    stack: str | None = None


@dataclass(kw_only=True)
class TaskOrder(Model):
    """The order to carry out a task."""

    #: The attempt. The three go back with every report.
    attempt: int
    #: The name that is watched.
    handler: str
    #: The run.
    identity: str
    #: Its job.
    job_id: str
    #: Milliseconds after which the attempt is over if the broker has not heard of it: any report renews them,
    #: and a heartbeat that names it. A worker stops the task when so much has passed since it sent the last of
    #: them that the broker has answered.
    lease: int
    #: What the function gets: any JSON.
    arguments: Any = None
    #: What the last run of the job left: any JSON.
    data: Any = None
    #: Which of its instances.
    instance: int | None = None
    #: How many instances the run has.
    instances: int | None = None
    #: The instant that the run was planned for; none if it was triggered by hand.
    planned_at: datetime | None = None
    #: Milliseconds that the attempt may take.
    timeout: int | None = None
    #: W3C trace id: 32 hexadecimal digits.
    trace_id: str | None = None


@dataclass(kw_only=True)
class TaskRef(Model):
    """One attempt of one instance of a run."""

    #: Counts the hand-outs of the instance from 1.
    attempt: int
    #: The run.
    identity: str
    #: Which of its instances; 0 if it has only one.
    instance: int | None = None


@dataclass(kw_only=True)
class TaskRefInput(Model):
    """One attempt of one instance of a run."""

    #: Counts the hand-outs of the instance from 1.
    attempt: int
    #: The run.
    identity: str
    #: Which of its instances; 0 if it has only one.
    instance: int | None = None


@dataclass(kw_only=True)
class TaskReport(Model):
    """What a worker says of an attempt of a task. Each of them renews its lease."""

    #: The attempt.
    attempt: int
    #: The run.
    identity: str
    #: Where it is.
    state: TaskState
    #: For the next run of the job: any JSON.
    data: Any = None
    #: With `failed` or `refused`: why.
    error: TaskError | None = None
    #: Which of its instances.
    instance: int | None = None
    #: Lines for the log of the run.
    logs: list[LogInput] | None = None
    #: When the job wants to be run next, once, whatever its plan says; what is past means now.
    next_at: datetime | None = None
    #: 0 to 100.
    progress: int | None = None
    #: With `success`: what it brought, any JSON.
    result: Any = None
    #: What it is at, in words.
    text: str | None = None


@dataclass(kw_only=True)
class TaskSettings(Model):
    """What a job of the kind `task` says of its task."""

    #: Any JSON: what the function gets, unless the trigger brings its own.
    arguments: Any = None
    #: Milliseconds that a task has to end after it was told to; then its run is closed; 5,000 unless said.
    cancel_grace: int | None = None
    #: Only workers of this group.
    group: str | None = None
    #: The name that workers watch. Absent: the property `FullClassName`.
    handler: str | None = None
    #: For `hash` and `sticky`: what is hashed. A JSON pointer (RFC 6901) into the arguments; absent: the
    #: arguments as a whole; for `sticky` absent: the job.
    key: str | None = None
    #: Milliseconds without a word of it after which an attempt counts as lost; 10,000 unless said. Its worker
    #: stops it by then too, so that the next attempt never meets it.
    lease: int | None = None
    #: Attempts that may be lost with their worker before the run fails; 3 unless said. Failures that the
    #: function reports are counted by the policy `retry`.
    lost_attempts: int | None = None
    #: What becomes of a run whose name nobody watches.
    no_worker: NoWorker | None = None
    #: For `shard`: how many parts; 0: one for each worker that is there.
    shards: int | None = None
    #: Which of the workers that watch the name gets it.
    strategy: Strategy | None = None
    #: Only workers that have all of these tags.
    tags: list[str] | None = None
    #: Only workers of this version.
    version: str | None = None


@dataclass(kw_only=True)
class Trigger(Model):
    """One reason to run. Exactly one of `cron`, `every` and `at` is given."""

    #: The interval counts from the end of the last run instead.
    after_end: bool | None = None
    #: From where the interval counts: fire k is at anchor + k · every. The time of creation, if absent.
    anchor: datetime | None = None
    #: One instant.
    at: datetime | None = None
    #: A cron expression of 5, 6 (seconds first) or 7 (years last) fields, or a word like `@daily`.
    cron: str | None = None
    #: An interval in milliseconds; 0: once, and then the job is disabled.
    every: int | None = None


@dataclass(kw_only=True)
class TriggerInput(Model):
    """How to trigger a job."""

    #: Instead of the job's own: of a task any JSON, of other jobs a text.
    arguments: Any = None
    #: The instant that an outside scheduler planned: one instant makes one run, however often it is told.
    fire_time: datetime | None = None
    #: Told twice under one key, a trigger makes one run. The header `Idempotency-Key` says the same.
    idempotency_key: str | None = None
    #: Instead of the job's own.
    priority: int | None = None


@dataclass(kw_only=True)
class TriggeredOutput(Model):
    """What became of one trigger of several."""

    #: The run.
    identity: str | None = None
    #: Why there is none.
    problem: Problem | None = None


@dataclass(kw_only=True)
class WhyOutput(Model):
    """Why something is as it is: an answer for people, and the rule behind it for programs."""

    #: The whole answer, sentence by sentence.
    because: list[str]
    #: The rule: due, misfire, window, overlap, blackout, asked, disabled, retry, noWorker …
    rule: str
    #: What was asked about: an instant or a run.
    subject: str
    #: In one word: fired, skipped, missed, merged, planned, notPlanned, disabled, waiting, running, over …
    verdict: str
    #: The run, if there is one.
    identity: str | None = None


@dataclass(kw_only=True)
class WorkerFacts(Model):
    """What a worker says of itself as it begins to watch."""

    #: The group that it belongs to.
    group: str | None = None
    #: For people, and for the order of the strategy `failover`.
    name: str | None = None
    #: Made at random when the program starts: after a reconnect the broker knows that it is the same one, and
    #: sends at once what did not come through. From another one, or without this, it waits for the lease.
    process: str | None = None
    #: Tasks that it takes at a time; 1 unless said, 0: none, it only carries out runs of block jobs.
    slots: int | None = None
    #: What it can or has, in words of its operator.
    tags: list[str] | None = None
    #: Of the program.
    version: str | None = None


@dataclass(kw_only=True)
class WorkerInput(Model):
    """The body of `POST /api/v1/workers`: a worker without a socket."""

    #: The classes that it watches.
    class_names: list[str]
    #: Runs that it has in hand already.
    runs: list[str] | None = None
    #: Tasks that it has in hand already, or whose end is not settled.
    tasks: list[TaskRefInput] | None = None
    #: Who it is.
    worker: WorkerFacts | None = None
    #: The id that it had before, if it comes again, or the number of a worker that is known.
    worker_id: str | int | None = None


@dataclass(kw_only=True)
class WorkerOutput(Model):
    """A worker, and how it is now."""

    #: The names that it watches, or watched last.
    class_names: list[str]
    #: When it was there for the first time.
    creation_time: datetime
    #: By a socket; else it calls by HTTP.
    has_socket: bool
    #: Its id.
    id: str
    #: It is there.
    is_online: bool
    #: When it was heard last, as far as it is known.
    last_seen: datetime
    #: Stands for its id where 64 bits have to do.
    number: str
    #: The operator's word.
    state: WorkerState
    #: What it can or has.
    tags: list[str]
    #: The tasks that it said last it has in hand.
    tasks: list[TaskRef]
    #: When.
    update_time: datetime
    #: Who said so: the role of a token, if tokens are in use.
    by: str | None = None
    #: Who came first with it: the role of its token, if tokens are in use.
    create_by: str | None = None
    #: The group that it says it belongs to.
    group: str | None = None
    #: For people.
    name: str | None = None
    #: Why.
    reason: str | None = None
    #: Tasks that it takes at a time; absent: it did not say.
    slots: int | None = None
    #: Who said the last word on it: the same as `by`, under the name that it has everywhere.
    update_by: str | None = None
    #: Of its program.
    version: str | None = None


@dataclass(kw_only=True)
class WorkerOutputPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[WorkerOutput]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None


@dataclass(kw_only=True)
class WorkerRegistered(Model):
    """The answer to a worker without a socket: the rules of the house."""

    #: Milliseconds between two calls.
    heartbeat: int
    #: Stands for its id where 64 bits have to do.
    number: str
    #: Milliseconds of silence after which it counts as lost.
    offline: int
    #: The id under which it is known.
    worker_id: str


@dataclass(kw_only=True)
class WorkerWatch(Model):
    """A worker's watch of one class, now or in the past."""

    #: Since when.
    connect_time: datetime
    #: The worker.
    connection_id: str
    #: The class.
    full_class_name: str
    #: Counts the watches.
    id: int
    #: Until when; absent: it watches now.
    disconnect_time: datetime | None = None


@dataclass(kw_only=True)
class WorkerWatchPage(Model):
    """A list, and where it goes on."""

    #: The items.
    items: list[WorkerWatch]
    #: Give it back as `cursor` for what follows; absent at the end.
    next_cursor: str | None = None
