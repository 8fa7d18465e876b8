// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** The heartbeats of a lock or of a session, and the calls of its release. @module */

import { describe, readDone, text, type Answer, type Confirmed, type Reply } from "./answers.js";
import type { Clock } from "./clock.js";
import type { Events } from "./events.js";
import type { Heartbeat, Lease, Release, State } from "./lease.js";
import { Backoff, CallError, reasonOf, type Caller } from "./transport.js";

/** The longest sleep, in milliseconds: after a suspend the clock is read this soon. For tests. */
export const step = { ms: 1000 };

/** What keeps a lease alive, and who is told. */
export interface Renewal {
  readonly path: string;
  /** Returns the call, which is the same each time that the heartbeat is sent. */
  readonly body: (heartbeat: Heartbeat) => object;
  readonly read: (reply: Reply) => Answer;
  /** Is called with what was confirmed, and each time that the deadline was looked at. */
  readonly told: (answer?: Confirmed) => void;
}

/** Sends the heartbeats of a lease, and looks at its deadline. They do not keep the process running. */
export class Heartbeats {
  /** What the last heartbeat that was not confirmed was answered. */
  last = "";
  /** The limit of a call, in milliseconds. */
  readonly limit: number;
  readonly #ending = new AbortController(); // the release has begun
  #kept: Promise<void> = Promise.resolve();

  constructor(
    readonly lease: Lease,
    readonly clock: Clock,
    readonly calls: Caller,
    readonly renewal: Renewal,
  ) {
    this.limit = Math.max(lease.grant.leaseMs / 10, 250);
  }

  /** Returns what the lease is now. */
  state(): State {
    return this.lease.state(this.clock());
  }

  /** Sends the first heartbeat if the lease is not held yet, and goes on. False if the lease was lost. */
  async start(): Promise<boolean> {
    const backoff = new Backoff();
    while (this.state() === "unconfirmed" && !this.#ending.signal.aborted) {
      const heartbeat = this.lease.send(this.clock());
      if (!heartbeat || (await this.#exchange(heartbeat))) {
        break;
      }
      await sleep(backoff.next(), this.#ending.signal);
    }
    if (this.state() !== "held") {
      return false;
    }
    this.#kept = this.#keep();
    this.#watch();
    return true;
  }

  /** Ends the heartbeats, and a start that is under way. */
  abort(): void {
    this.#ending.abort();
    this.calls.abort();
  }

  /** Waits until the heartbeat under way has ended, for the time of a call at most. */
  async ended(): Promise<void> {
    await Promise.race([this.#kept, sleep(this.limit)]);
  }

  /** Sends a heartbeat once, and returns whether it was answered. */
  async #exchange(heartbeat: Heartbeat): Promise<boolean> {
    const { path, body, read } = this.renewal;
    const answer = await exchange(this.calls, path, body(heartbeat), this.limit, read);
    const now = this.clock();
    if (answer.is === "confirmed") {
      this.last = "";
      this.lease.confirm(heartbeat, answer.usableMs, answer.heartbeatMs, answer.asked, now);
      this.renewal.told(answer);
    } else if (answer.is === "problem" && answer.kind === "lost") {
      this.lease.refuse(heartbeat, text(answer.more["holder"]), now);
      this.renewal.told();
    } else {
      this.last = describe(answer);
      return false;
    }
    return true;
  }

  /** Sends heartbeats as they are due, until the last one. */
  async #keep(): Promise<void> {
    const ending = this.#ending.signal;
    let backoff = new Backoff();
    while (!ending.aborted) {
      const wait = this.lease.due(this.clock());
      if (wait === undefined) {
        return;
      }
      if (wait > 0) {
        await sleep(Math.min(wait, step.ms), ending, false);
        continue;
      }
      const heartbeat = this.lease.send(this.clock());
      if (!heartbeat) {
        return;
      }
      if (await this.#exchange(heartbeat)) {
        backoff = new Backoff();
      } else {
        await sleep(backoff.next(), ending, false);
      }
    }
  }

  /** Ends the work at the deadline. It needs no network. */
  #watch(): void {
    if (this.#ending.signal.aborted) {
      return;
    }
    this.renewal.told();
    if (this.state() === "held") {
      const wait = Math.min(Math.max(this.lease.remaining(this.clock()), 1), step.ms);
      void sleep(wait, this.#ending.signal, false).then(() => this.#watch());
    }
  }
}

/** Makes the calls of a release, and returns what the last one that had no answer said. */
export async function carryOut(
  release: Release,
  clock: Clock,
  calls: Caller,
  path: string,
  body: object,
  limit: number,
): Promise<string> {
  const backoff = new Backoff();
  let last = "";
  for (let after = release.call(clock()); after !== undefined; after = release.call(clock())) {
    const answer = await exchange(calls, path, { ...body, after }, limit, readDone);
    if (answer.is === "done") {
      release.applied();
    } else if (answer.is === "problem" && answer.kind === "lost") {
      release.refused();
    } else {
      release.unknown();
      last = describe(answer);
      await sleep(backoff.next());
    }
  }
  return last;
}

/** Sends a call once and reads its answer; without one the next call goes to the next server. */
export async function exchange(
  caller: Caller,
  path: string,
  body: object,
  limit: number,
  read: (reply: Reply) => Answer,
  events?: Events,
): Promise<Answer> {
  let answer: Answer;
  try {
    answer = read(await caller.call(path, body, limit, events));
  } catch (error) {
    answer = { is: "unknown", why: reasonOf(error), permanent: error instanceof CallError && error.permanent };
  }
  if (answer.is === "unknown" || (answer.is === "problem" && answer.status >= 500)) {
    caller.move();
  }
  return answer;
}

/**
 * Sleeps for so many milliseconds, or until the signal is aborted. It never rejects. A process that
 * has nothing else to do may end meanwhile, unless it is to be kept running.
 */
export function sleep(ms: number, signal?: AbortSignal, keepsRunning = true): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const end = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    if (!keepsRunning) {
      timer.unref();
    }
    signal?.addEventListener("abort", end, { once: true });
  });
}
