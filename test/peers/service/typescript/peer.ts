// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/**
 * The TypeScript client of the lock service as a peer: one JSON request a line on standard input,
 * answers on standard output. The language is that of the Go package peers/wire.
 */

import { closeSync, openSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

import {
  Client, HeldError, LostError, TenureError, type AcquireOptions, type Lock, type Session,
} from "../../../../clients/typescript/src/index.js";
import type { Locks } from "../../../../clients/typescript/src/locks.js";

const CHECK_MS = 1;
const ERROR_PAUSE_MS = 50;

/** Work that is to be stopped by a signal asks without a pause, for so long at most. */
const HURRY_BOUND = 500_000_000;
/** And for so long when it goes on: a check is the first thing that it does then. */
const HURRY_AFTER = 20_000_000;

/** One command, as the Go package peers/wire has it. */
type Request = Record<string, any>;

/** The machine's CLOCK_MONOTONIC in nanoseconds. */
function monotonic(): number {
  return Number(process.hrtime.bigint());
}

function holds(lock: Lock): boolean {
  try {
    lock.check();
    return true;
  } catch (error) {
    if (error instanceof TenureError) {
      return false;
    }
    throw error;
  }
}

/** A command that there is not. */
class Unsupported extends Error {}

/** One client, and the locks that it has. */
class Peer {
  client!: Client;
  owner = "";
  notice = false;
  session = false; // work holds locks under one
  /** For how long work goes on after it was told to end; undefined: it was not. */
  drainMs: number | undefined;
  #hurry = 0;
  readonly #waiting = new AbortController();
  readonly #locks = new Map<string, Lock>();

  /** Answers until the input ends, and leaves as in a crash then. */
  async serve(): Promise<void> {
    const now = monotonic();
    const ready = { ok: true, version: "this checkout", sentNs: now, gotNs: now };
    say({ ...ready, runtime: `Node ${process.versions.node}` });
    for await (const line of createInterface({ input: process.stdin })) {
      void this.#answer(JSON.parse(line) as Request);
    }
    process.exit(0);
  }

  async #answer(request: Request): Promise<void> {
    const sentNs = monotonic();
    let answer: object;
    try {
      answer = { ok: true, ...(await this.#run(request)) };
    } catch (error) {
      const e = error instanceof Error ? error : new Error(String(error));
      let kind = "other";
      if (e instanceof HeldError) {
        kind = request.tryOnly ? "held" : "timeout";
      } else if (e instanceof LostError) {
        kind = "lost";
      } else if (e instanceof Unsupported) {
        kind = "unsupported";
      }
      answer = { ok: false, kind, class: e.name, message: e.message };
    }
    say({ ...answer, id: request.id, sentNs, gotNs: monotonic() });
  }

  async #run(request: Request): Promise<object> {
    switch (request.cmd) {
      case "ping":
        return {};
      case "hurry":
        this.#hurry = monotonic() + HURRY_BOUND;
        return {};
      case "end":
        this.drainMs = request.drainMs ?? 0;
        return {};
      case "open":
        this.owner = request.owner || String(process.pid);
        this.notice = request.notice ?? false;
        this.session = request.session ?? false;
        this.client = new Client((request.endpoint ?? "").split(","), { token: request.secret ?? "" });
        return {};
      case "close": // the acquires that wait end; there is nothing else to close: a lock is its own
        this.#waiting.abort();
        return {};
      case "acquire":
        return this.#acquire(request);
      case "release":
        await this.#lock(request).release();
        return {};
      case "holds":
        return { holds: holds(this.#lock(request)) };
      case "work":
        return { counts: await new Work(this, request).run() };
    }
    throw new Unsupported(request.cmd);
  }

  async #acquire(request: Request): Promise<object> {
    const waitMs = request.tryOnly ? 0 : request.waitMs;
    const lock = await this.client.acquire(request.name ?? "", {
      owner: this.owner,
      history: true,
      signal: this.#waiting.signal,
      ...(waitMs === undefined ? {} : { waitMs }),
    });
    this.#locks.set(lock.name, lock);
    return { name: lock.name, owner: this.owner, token: lock.token };
  }

  #lock(request: Request): Lock {
    const lock = this.#locks.get(request.name ?? "");
    if (!lock) {
      throw new Error(`no handle of ${request.name}`);
    }
    return lock;
  }

  /** Says whether work that asked at two instants, one after the other, goes on without a pause. */
  hurries(last: number, now: number): boolean {
    if (this.#hurry > 0 && now - last > HURRY_BOUND) {
      this.#hurry = now + HURRY_AFTER; // it was stopped meanwhile
    }
    return now < this.#hurry;
  }
}

/** The work command: acquire, hold and release until the time is up, with a log of the holds. */
class Work {
  readonly #log: number;
  readonly #counts = { released: 0, errors: 0, lastError: "" };
  #session?: Session;

  constructor(
    readonly peer: Peer,
    readonly request: Request,
  ) {
    this.#log = openSync(request.log ?? "", "a", 0o600);
  }

  async run(): Promise<object> {
    const deadline = monotonic() + (this.request.durationMs ?? 0) * 1e6;
    while (monotonic() < deadline && this.peer.drainMs === undefined) {
      try {
        await this.#round();
      } catch (error) {
        if (!(error instanceof TenureError)) {
          throw error;
        }
        if (!(error instanceof HeldError || error instanceof LostError)) { // its session has ended
          this.#counts.errors++;
          this.#counts.lastError = `${error.name}: ${error.message}`;
          await sleep(ERROR_PAUSE_MS);
        }
      }
      await sleep(this.request.pauseMs ?? 0);
    }
    closeSync(this.#log);
    return this.#counts;
  }

  async #round(): Promise<void> {
    const lock = await this.#acquire();
    const begin = monotonic();
    if (!holds(lock)) {
      return; // it came too late to be claimed for a single instant
    }
    this.#write("begin", begin, ` ${lock.fenceToken} ${this.#fenced(lock)}`);
    if (this.peer.notice) {
      lock.over.addEventListener("abort", () => {
        if (lock.over.reason instanceof LostError) {
          this.#write("notice", monotonic());
        }
      });
    }
    const drainMs = await this.#hold(lock, begin);
    if (drainMs !== undefined) {
      await sleep(drainMs);
      this.#write("end", monotonic());
    }
    try {
      await lock.release();
      this.#counts.released++;
    } catch (error) {
      if (!(error instanceof LostError)) {
        throw error;
      }
    }
  }

  async #acquire(): Promise<Lock> {
    const { waitMs } = this.request;
    const options = { history: true, ...(waitMs === undefined ? {} : { waitMs }) };
    const { client, owner } = this.peer;
    if (!this.peer.session) {
      return this.#from(client, { owner, ...options });
    }
    if (!this.#session || this.#session.over.aborted) {
      this.#session = await client.session({ owner, ...options });
    }
    return this.#from(this.#session, options);
  }

  #from<O extends AcquireOptions>(by: Locks<O>, options: O): Promise<Lock> {
    const { name, mode, slots } = this.request;
    switch (mode) {
      case "read":
        return by.rwlock(name).read(options);
      case "write":
        return by.rwlock(name).write(options);
      case "slot":
        return by.semaphore(name, slots).acquire(options);
    }
    return by.acquire(name, options);
  }

  /** Returns the name under which the resource compares the token. */
  #fenced(lock: Lock): string {
    return this.request.mode === "slot" ? lock.name : this.request.name;
  }

  /** Works under the lock. Returns how long the work goes on if it was told to end. */
  async #hold(lock: Lock, begin: number): Promise<number | undefined> {
    const until = begin + (this.request.holdMs ?? 0) * 1e6;
    const every = (this.request.effectMs ?? 0) * 1e6;
    let [last, effect, no] = [begin, begin, 0];
    let drainMs: number | undefined;
    while (last < until && !lock.signal.aborted && drainMs === undefined) {
      // The instant first, then the check: what is logged was not expired.
      const now = monotonic();
      if (!holds(lock)) {
        no = monotonic();
        break;
      }
      const before = last;
      last = now;
      if (this.request.resource && now >= effect) {
        await sleep(this.request.hesitateMs ?? 0);
        await this.#effect(lock, now);
        effect = now + every;
      }
      if (this.peer.hurries(before, now)) {
        continue;
      }
      drainMs = this.peer.drainMs;
      await sleep(CHECK_MS);
    }
    if (no === 0 && !holds(lock)) {
      no = monotonic();
    }
    if (this.peer.notice && no > 0) {
      this.#write("no", no);
    }
    if (drainMs === undefined) {
      this.#write("end", last);
    }
    return drainMs;
  }

  /** Writes to the resource, which notes it with the instant before the check that allowed it. */
  async #effect(lock: Lock, checked: number): Promise<void> {
    const headers = {
      "Tenure-Lock": this.#fenced(lock),
      "Tenure-Token": String(lock.fenceToken),
      Effect: JSON.stringify({ owner: this.peer.owner, checked }),
    };
    const call = { method: "POST", headers, signal: AbortSignal.timeout(2000) };
    try {
      await (await fetch(this.request.resource + "/effect", call)).arrayBuffer();
    } catch {
      // It was noted, or it was not: the resource's log says so.
    }
  }

  #write(what: string, ns: number, more = ""): void {
    writeSync(this.#log, `${what} ${this.peer.owner} ${ns}${more}\n`);
  }
}

/** Writes a line. No buffer is between. */
function say(line: object): void {
  const text = Buffer.from(JSON.stringify(line) + "\n");
  for (let at = 0; at < text.length; ) {
    try {
      at += writeSync(out, text, at);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "EAGAIN") {
        throw error;
      }
    }
  }
}

// A descriptor of its own: Node makes its standard output non-blocking.
const out = openSync("/proc/self/fd/1", "w");

await new Peer().serve();
