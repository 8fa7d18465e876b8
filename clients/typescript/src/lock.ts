// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/// <reference lib="esnext.disposable" preserve="true" />

/** A lock that is held: its heartbeats, its deadline, its release. @module */

import { describe, readHeartbeat, readRelease, text, type Answer, type Reply } from "./answers.js";
import type { Clock } from "./clock.js";
import {
  AskedError,
  ExpiredError,
  LostError,
  NotConfirmedError,
  ReleasedError,
  UncertainError,
  type TenureError,
} from "./errors.js";
import type { Events } from "./events.js";
import { Lease, type Grant, type Heartbeat, type Release } from "./lease.js";
import { Backoff, CallError, reasonOf, type Caller } from "./transport.js";

/** How a lock is released. */
export interface ReleaseOptions {
  /** Is kept in the record for the next holder. */
  readonly data?: Uint8Array;
  /** Says that the work failed, and why. */
  readonly failed?: string;
}

const DISPOSE: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose);

const LONGEST_REASON = 1024;

/** The longest sleep, in milliseconds: after a suspend the clock is read this soon. For tests. */
export const step = { ms: 1000 };

/**
 * A lock that this process holds. Made by `Client.acquire`.
 *
 * Call {@link check} before every side effect: it reads the clock itself, and is right where timers
 * are late. The heartbeats of a lock of `Client.acquire` do not keep the process running; those of
 * `Client.run` do until the work has ended.
 */
export class Lock implements AsyncDisposable {
  readonly name: string;
  readonly token: number;
  /** What the former holder left in the record. */
  readonly data: Uint8Array | undefined;
  readonly #clock: Clock;
  readonly #beats: Caller;
  readonly #releases: Caller;
  readonly #keepsRunning: boolean; // whether a process that has nothing else to do waits for its timers
  readonly #limit: number; // of a call, in milliseconds
  readonly #lease: Lease;
  readonly #stopping = new AbortController();
  readonly #over = new AbortController();
  readonly #ending = new AbortController(); // the release has begun
  #last = ""; // what the last heartbeat that was not confirmed was answered
  #released: Promise<void> | undefined;
  #kept: Promise<void> = Promise.resolve();

  /** For `Client.acquire`. */
  constructor(grant: Grant, stopTimeout: number, clock: Clock, beats: Caller, releases: Caller, keepsRunning: boolean) {
    this.name = grant.name;
    this.token = grant.token;
    this.data = grant.data;
    this.#lease = new Lease(grant, stopTimeout);
    this.#limit = Math.max(grant.leaseMs / 10, 250);
    this.#clock = clock;
    this.#beats = beats;
    this.#releases = releases;
    this.#keepsRunning = keepsRunning;
  }

  /**
   * Is aborted when the work must stop: by a request (the reason is an AskedError), or the lock is
   * over. Between the two `check` passes, so that work which was asked can end in order.
   */
  get signal(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Is aborted when the lock is not held any more. The reason says why. */
  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** The request to the holder. */
  get asked(): AskedError | undefined {
    return this.#lease.asked;
  }

  /** Throws a LostError, ExpiredError or ReleasedError if the holder may not act. It sends nothing. */
  check(): void {
    if (this.#state() !== "held") {
      throw this.#error();
    }
  }

  /** Returns the milliseconds until the right ends if no more heartbeat is confirmed. */
  remaining(): number {
    return this.#lease.remaining(this.#clock());
  }

  /**
   * Releases the lock, so that others need not wait. Call it when the work has returned.
   *
   * Rejects with what had ended the lock before: LostError, ExpiredError; or with UncertainError if
   * no answer came for the time of a lease. A second call ends as the first.
   */
  release(options: ReleaseOptions = {}): Promise<void> {
    this.#released ??= this.#end(options);
    return this.#released;
  }

  /** Releases the lock at the end of an `await using` block; see {@link close}. */
  async [DISPOSE](): Promise<void> {
    await this.close(undefined);
  }

  /**
   * Releases the lock after work that ended in the error, or in none. Rejects if the lock was lost
   * before the work was done; a release without an answer is no failure of the work.
   */
  async close(error: unknown): Promise<void> {
    const failed = failure(error);
    try {
      await this.release(failed === undefined ? {} : { failed });
    } catch (ended) {
      if (error === undefined && !(ended instanceof UncertainError)) {
        throw ended;
      }
    }
  }

  /**
   * Begins to hold the lock that answered an acquire sent after that instant: at once if the grant counts,
   * else when the first heartbeat is confirmed. Heartbeats go on then. False if the grant was lost.
   */
  async start(sent: number): Promise<boolean> {
    const backoff = new Backoff();
    this.#lease.granted(sent, this.#clock());
    while (this.#state() === "unconfirmed" && !this.#ending.signal.aborted) {
      const heartbeat = this.#lease.send(this.#clock());
      if (!heartbeat || (await this.#exchange(heartbeat))) {
        break;
      }
      await sleep(backoff.next(), this.#ending.signal);
    }
    if (this.#state() !== "held") {
      return false;
    }
    this.#tellAsked();
    this.#kept = this.#keep();
    this.#watch();
    return true;
  }

  /** Ends a start that is under way. The caller releases the lock then. */
  abandon(): void {
    this.#ending.abort();
    this.#beats.abort();
  }

  #state(): ReturnType<Lease["state"]> {
    return this.#lease.state(this.#clock());
  }

  /** Sends a heartbeat once, and returns whether it was answered. */
  async #exchange(heartbeat: Heartbeat): Promise<boolean> {
    const body = { name: this.name, token: this.token, after: heartbeat.after, next: heartbeat.next };
    const answer = await exchange(this.#beats, "/v1/heartbeat", body, this.#limit, readHeartbeat);
    const now = this.#clock();
    if (answer.is === "confirmed") {
      this.#last = "";
      this.#lease.confirm(heartbeat, answer.usableMs, answer.heartbeatMs, answer.asked, now);
    } else if (answer.is === "problem" && answer.kind === "lost") {
      this.#lease.refuse(heartbeat, text(answer.more["holder"]), now);
    } else {
      this.#last = describe(answer);
      return false;
    }
    return true;
  }

  /** Sends heartbeats as they are due, until the last one. */
  async #keep(): Promise<void> {
    const ending = this.#ending.signal;
    let backoff = new Backoff();
    while (!ending.aborted) {
      const wait = this.#lease.due(this.#clock());
      if (wait === undefined) {
        return;
      }
      if (wait > 0) {
        await sleep(Math.min(wait, step.ms), ending, this.#keepsRunning);
        continue;
      }
      const heartbeat = this.#lease.send(this.#clock());
      if (!heartbeat) {
        return;
      }
      if (await this.#exchange(heartbeat)) {
        backoff = new Backoff();
        this.#tellAsked();
        this.#tellOver();
      } else {
        await sleep(backoff.next(), ending, this.#keepsRunning);
      }
    }
  }

  /** Ends the work at the deadline. It needs no network. */
  #watch(): void {
    if (this.#ending.signal.aborted || this.#tellOver()) {
      return;
    }
    const wait = Math.min(Math.max(this.remaining(), 1), step.ms);
    void sleep(wait, this.#ending.signal, this.#keepsRunning).then(() => this.#watch());
  }

  #tellAsked(): void {
    if (this.asked && !this.#ending.signal.aborted) {
      this.#stopping.abort(this.asked);
    }
  }

  #tellOver(): boolean {
    const state = this.#state();
    if (state === "expired" || state === "lost") {
      const reason = this.#error();
      this.#over.abort(reason);
      this.#stopping.abort(reason);
    }
    return state !== "held";
  }

  /** Returns why the holder may not act. */
  #error(): TenureError {
    const lock = `"${this.name}" (token ${this.token})`;
    switch (this.#state()) {
      case "lost": {
        const by = this.#lease.refusedBy;
        return new LostError(`${lock} is lost${by && `: ${JSON.stringify(by)} is there now`}`);
      }
      case "expired": {
        const last = this.#last && `; last answer: ${this.#last}`;
        return new ExpiredError(`${lock} has expired: no heartbeat was confirmed in time${last}`);
      }
      case "unconfirmed":
        return new NotConfirmedError(`${lock}: no heartbeat is confirmed yet`);
      default:
        return new ReleasedError(`${lock} is released`);
    }
  }

  /** Ends the heartbeats and releases the lock. */
  async #end(options: ReleaseOptions): Promise<void> {
    const ended = ["expired", "lost"].includes(this.#state()) ? this.#error() : undefined;
    const release = this.#lease.release(this.#clock());
    this.abandon();
    this.#over.abort(this.#error());
    this.#stopping.abort(this.#error());
    await Promise.race([this.#kept, sleep(this.#limit)]);
    const body = {
      name: this.name,
      token: this.token,
      ...(options.data && { data: Buffer.from(options.data).toString("base64") }),
      ...(options.failed !== undefined && { failed: options.failed.slice(0, LONGEST_REASON) }),
    };
    const error = await this.#carryOut(release, body);
    if (ended ?? error) {
      throw ended ?? error;
    }
  }

  async #carryOut(release: Release, body: object): Promise<TenureError | undefined> {
    const backoff = new Backoff();
    const lock = `"${this.name}" (token ${this.token})`;
    let last = "";
    for (let after = release.call(this.#clock()); after !== undefined; after = release.call(this.#clock())) {
      const answer = await exchange(this.#releases, "/v1/release", { ...body, after }, this.#limit, readRelease);
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
    switch (release.outcome) {
      case "unknown":
        return new UncertainError(
          `the release of ${lock} got no answer: the lock is released, or expires by itself; last answer: ${last}`,
        );
      case "lost":
        return new LostError(`${lock} was lost before it was released`);
      default:
        return undefined;
    }
  }
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

/** Returns what the history says of work that ended in an error; undefined if it did not fail. */
function failure(error: unknown): string | undefined {
  if (error === undefined || error instanceof AskedError || error instanceof LostError) {
    return undefined;
  }
  return (error instanceof Error ? `${error.name}: ${error.message}` : String(error)).replace(/\p{C}/gu, " ");
}
