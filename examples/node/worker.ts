#!/usr/bin/env node
// A worker of tasks for Node.js, which needs no package at run time: docs/protocol.md, "Tasks by plain HTTP".
//
//     npm ci && npm run build && node build/worker.js [BROKER [TOKEN]]      (Node.js 18 or later)
//     node worker.ts [BROKER [TOKEN]]                                       (Node.js 22.18 or later)
//
// Both may also stand in the environment, as WEBLOOM_BROKER and WEBLOOM_TOKEN.
//
// A task is an async function of its arguments and a context. A last report is sent until the broker has settled it, so no result
// is lost while the broker is away. A task is told to end before its lease may be over, since another worker gets it then.

import { randomUUID } from "node:crypto";

const BROKER = (process.argv[2] ?? process.env.WEBLOOM_BROKER ?? "http://127.0.0.1:55626").replace(/\/$/, "");
const TOKEN = process.argv[3] ?? process.env.WEBLOOM_TOKEN;
const SLOTS = 4;
const PROCESS = randomUUID().replaceAll("-", "");

/** Which attempt a message is about. */
interface Ref {
  identity: string;
  instance?: number;
  attempt: number;
}

/** What the broker sends for a task to do. */
interface Order extends Ref {
  handler: string;
  arguments?: unknown;
  /** What the last run of the job stored. */
  data?: unknown;
  /** Milliseconds until another worker may get the task, unless a report or a heartbeat renews it. */
  lease: number;
}

interface Failure {
  message: string;
  stack?: string | undefined;
  permanent?: boolean;
}

/** What goes with the last report of a run that succeeds. */
interface After {
  data?: unknown;
  nextAt?: string;
}

/** What the worker says of a task. `success`, `failed`, `cancelled` and `refused` are last words. */
interface Report extends Ref, After {
  state: "running" | "success" | "failed" | "cancelled" | "refused";
  progress?: number;
  text?: string;
  logs?: { text: string; level: string; at: string }[];
  result?: unknown;
  error?: Failure;
}

/** A message of the broker. */
type Message =
  | { t: "tasks"; v: Order[] }
  | { t: "settled"; v: Ref[] }
  | { t: "cancel"; v: { task: Ref; reason: string } }
  | { t: "drain" }
  | { t: "kicked"; v: { reason: string } };

interface Answer<T> {
  /** 0: the broker is away. */
  status: number;
  value: T | null;
}

/** It would fail again, so no other attempt is made. */
class Permanent extends Error {}

const now = (): number => performance.now(); // a clock that is never set
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));
const ref = ({ identity, instance = 0, attempt }: Ref): Ref => ({ identity, instance, attempt });
const key = (task: Ref): string => `${task.identity}/${task.instance ?? 0}/${task.attempt}`;

/** One attempt, as its function sees it. */
class Task {
  readonly order: Order;
  /** What the function may set: it goes with the last report. */
  readonly after: After = {};
  /** The end of its lease. */
  until = 0;
  hasBegun = false;
  readonly #say: (report: Report) => void;
  readonly #canceller = new AbortController();

  constructor(order: Order, say: (report: Report) => void) {
    this.order = order;
    this.#say = say;
  }

  get data(): unknown {
    return this.order.data;
  }

  /** For the function: `fetch(url, { signal: task.signal })`. */
  get signal(): AbortSignal {
    return this.#canceller.signal;
  }

  cancel(reason: string): void {
    this.#canceller.abort(new Error(reason));
  }

  async sleep(ms: number): Promise<void> {
    this.signal.throwIfAborted();
    await new Promise<void>((resolve, reject) => {
      const stop = (): void => {
        clearTimeout(timer);
        reject(this.signal.reason);
      };
      const timer = setTimeout(() => {
        this.signal.removeEventListener("abort", stop);
        resolve();
      }, ms);
      this.signal.addEventListener("abort", stop, { once: true });
    });
  }

  progress(percent: number, text: string): void {
    this.#say({ ...ref(this.order), state: "running", progress: percent, text });
  }

  log(text: string, level = "info"): void {
    this.#say({ ...ref(this.order), state: "running", logs: [{ text, level, at: new Date().toISOString() }] });
  }
}

type Handler = (argument: unknown, task: Task) => unknown;

const HANDLERS: Record<string, Handler> = {
  /** `[1, 2, 3]` brings 6. */
  "node.sum": (numbers) => {
    if (!Array.isArray(numbers)) throw new Permanent("a list of numbers is expected");
    return numbers.reduce((sum: number, number: number) => sum + number, 0);
  },
  /** `{"steps": 60, "pause": 1000}` takes a minute and says where it is. */
  "node.walk": async (argument, task) => {
    const { steps, pause = 1000 } = argument as { steps: number; pause?: number };
    for (let step = 1; step <= steps; step++) {
      await task.sleep(pause);
      task.progress(Math.floor((step * 100) / steps), `step ${step} of ${steps}`);
    }
  },
  /** Counts its runs in the data of the job. */
  "node.count": (_, task) => {
    const runs = (typeof task.data === "number" ? task.data : 0) + 1;
    task.log(`run number ${runs}`);
    task.after.data = runs;
    return runs;
  },
};

/** One call, and the JSON of its answer. */
async function call<T>(method: string, path: string, body?: unknown, timeoutMs = 10_000): Promise<Answer<T>> {
  const headers = { "Content-Type": "application/json", Accept: "application/json", ...(TOKEN && { Token: TOKEN }) };
  try {
    const signal = AbortSignal.timeout(timeoutMs);
    const answer = await fetch(BROKER + path, { method, headers, signal, ...(body !== undefined && { body: JSON.stringify(body) }) });
    const text = await answer.text();
    return { status: answer.status, value: text ? (JSON.parse(text) as T) : null };
  } catch {
    return { status: 0, value: null };
  }
}

class Worker {
  isDraining = false;
  /** By task. */
  readonly tasks = new Map<string, Task>();
  /** Last reports that are not settled, by task. */
  readonly outbox = new Map<string, Report>();
  #id = "";
  #beatMs = 3000;
  #beatenAt = 0;
  #wasThere = false;
  /** What tasks say before their end. */
  readonly #progressReports: Report[] = [];
  #wake = (): void => {};

  #inHand(): Ref[] {
    return [...[...this.tasks.values()].map((task) => ref(task.order)), ...[...this.outbox.values()].map(ref)];
  }

  /** Says what is watched and what is in hand; again whenever the broker has forgotten this worker. */
  async register(): Promise<boolean> {
    // What has not begun is not claimed: the broker may have given it away, and sends it again if it has not.
    for (const [name, task] of this.tasks) if (!task.hasBegun) this.tasks.delete(name);
    const worker = { name: "node", version: "1", tags: ["node"], slots: this.isDraining ? 0 : SLOTS, process: PROCESS };
    const body = { classNames: Object.keys(HANDLERS), tasks: this.#inHand(), worker, ...(this.#id && { workerId: this.#id }) };
    const { status, value } = await call<{ workerId: string; heartbeat: number }>("POST", "/api/v1/workers", body);
    // A token that was right before may come back; an operator may have put this worker out.
    if (status === 403 || (status >= 400 && status < 500 && status !== 429 && !this.#wasThere)) {
      throw new Error(`the broker does not want this worker: ${JSON.stringify(value)}`);
    }
    if (status !== 200 || value === null) return false;
    [this.#id, this.#beatMs, this.#wasThere] = [value.workerId, value.heartbeat, true];
    return true;
  }

  #say(report: Report): void {
    if (report.state === "running") this.#progressReports.push(report);
    else {
      this.tasks.delete(key(report));
      this.outbox.set(key(report), report);
    }
    this.#wake();
  }

  /** An order. It begins when `#beginNew` has found out that enough of its lease is left. */
  #take(order: Order): void {
    const name = key(order);
    if (this.tasks.has(name) || this.outbox.has(name)) return; // at work, or its last report is on its way
    const isFull = this.tasks.size >= SLOTS;
    if (!HANDLERS[order.handler] || isFull || this.isDraining) {
      const message = this.isDraining ? "draining" : isFull ? "all slots are taken" : "not watched here";
      this.#say({ ...ref(order), state: "refused", error: { message } });
    } else this.tasks.set(name, new Task(order, (report) => this.#say(report)));
  }

  #receive(message: Message): void {
    switch (message.t) {
      case "tasks":
        for (const order of message.v) this.#take(order);
        break;
      case "settled":
        for (const task of message.v) this.outbox.delete(key(task));
        break;
      case "drain":
        this.isDraining = true;
        break;
      case "kicked":
        throw new Error(`put out: ${message.v.reason}`);
      case "cancel": {
        const task = this.tasks.get(key(message.v.task));
        task?.cancel(message.v.reason);
        if (task && !task.hasBegun) this.#say({ ...ref(task.order), state: "cancelled", error: { message: message.v.reason } });
      }
    }
  }

  /** Fetches messages; false: this worker is forgotten, or the broker is away. */
  async #poll(waitS: number): Promise<boolean> {
    const path = `/api/v1/workers/${this.#id}/messages?wait=${waitS}`;
    const { status, value } = await call<Message[]>("GET", path, undefined, 10_000 + waitS * 1000);
    if (status === 200) for (const message of value ?? []) this.#receive(message);
    return status === 200 || status === 204;
  }

  /** Renews the leases of what it names, from when it is sent, once it is answered. Returns what it named. */
  async #heartbeat(): Promise<Task[]> {
    const named = [...this.tasks.values()].filter((task) => !task.signal.aborted);
    const sentAt = (this.#beatenAt = now());
    const { status } = await call("POST", `/api/v1/workers/${this.#id}/heartbeat`, { tasks: this.#inHand() });
    if (status !== 204 && status !== 200) return [];
    for (const task of named) if (!task.signal.aborted) task.until = Math.max(task.until, sentAt + task.order.lease);
    return named;
  }

  /** Begins what a heartbeat has named, unless the messages after it say that it is not ours any more. */
  async #beginNew(): Promise<void> {
    const named = await this.#heartbeat();
    if (!(await this.#poll(0))) return; // a `cancel` may be lost with it
    for (const task of named) {
      if (task.hasBegun || task.signal.aborted || now() >= task.until || !this.tasks.has(key(task.order))) continue;
      task.hasBegun = true;
      void this.#carryOut(task);
    }
  }

  async #carryOut(task: Task): Promise<void> {
    const { handler, arguments: argument } = task.order;
    let end: Pick<Report, "state" | "result" | "error">;
    try {
      const result = await HANDLERS[handler]?.(argument, task);
      end = { state: "success", ...(result !== undefined && { result }) };
    } catch (error) {
      const { message, stack } = error instanceof Error ? error : new Error(String(error));
      if (task.signal.aborted) end = { state: "cancelled", error: { message } };
      else end = { state: "failed", error: { message, stack, permanent: error instanceof Permanent } };
    }
    console.log(`${handler} ended: ${end.state}`);
    this.#say({ ...ref(task.order), ...end, ...task.after });
  }

  /** Sends what tasks said, and all last reports that are not settled. */
  async #report(): Promise<void> {
    const reports = [...this.#progressReports.splice(0, 100), ...[...this.outbox.values()].slice(0, 100)];
    if (!reports.length) return;
    const { status, value } = await call<Ref[]>("POST", `/api/v1/workers/${this.#id}/reports`, reports);
    if (status === 200) for (const task of value ?? []) this.outbox.delete(key(task));
  }

  /** Sends reports and heartbeats, and ends tasks whose lease may be over. */
  async #talk(): Promise<never> {
    for (;;) {
      const leases = [...this.tasks.values()].map((task) => task.order.lease);
      const beatAt = this.#beatenAt + Math.min(this.#beatMs, ...leases.map((lease) => lease / 3));
      if (this.#id && now() >= beatAt) await this.#heartbeat();
      for (const task of this.tasks.values()) {
        if (task.hasBegun && now() > task.until - task.order.lease / 5) task.cancel("its lease runs out");
      }
      const before = this.outbox.size;
      if (this.#id) await this.#report();
      // What is not settled is sent again after a second; what comes up wakes this loop.
      const rest = Math.min(beatAt - now(), before && this.outbox.size ? 1000 : Infinity, ...leases.map((lease) => lease / 20));
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, Math.max(rest, 10));
        this.#wake = () => {
          clearTimeout(timer);
          setTimeout(resolve, 5); // what ends at the same time goes together
        };
        if (this.#progressReports.length) this.#wake();
      });
    }
  }

  async run(): Promise<void> {
    void this.#talk();
    for (let tries = 0; ; tries++) {
      if (await this.register()) {
        console.log(`worker ${this.#id} watches ${Object.keys(HANDLERS).join(", ")}`);
        tries = 0;
        const hasNew = (): boolean => [...this.tasks.values()].some((task) => !task.hasBegun);
        while (await this.#poll(hasNew() || this.isDraining ? 0 : 20)) {
          if (hasNew()) await this.#beginNew();
          if (this.isDraining) {
            if (this.isIdle) return;
            await pause(100);
          }
        }
      }
      await pause(Math.min(300 * 2 ** tries, 30_000) * (0.5 + Math.random() / 2));
    }
  }

  /** Nothing is in hand, and all that was reported is settled. */
  get isIdle(): boolean {
    return !this.tasks.size && !this.outbox.size;
  }
}

const worker = new Worker();
for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, async () => {
    if (worker.isDraining) process.exit(1);
    worker.isDraining = true;
    await worker.register(); // with no slots; the poll that is open ends with the next message
    if (worker.isIdle) process.exit(0);
  });
}
worker.run().then(
  () => process.exit(0),
  (error: unknown) => {
    console.error(error instanceof Error ? error.message : error);
    process.exit(1);
  },
);
