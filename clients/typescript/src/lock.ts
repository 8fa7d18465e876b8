// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/// <reference lib="esnext.disposable" preserve="true" />

/** A lock that is held: its check, its end, its release. @module */

import { readHeartbeat } from "./answers.js";
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
import { carryOut, Heartbeats } from "./heartbeats.js";
import { Lease, type Grant, type LastWriter, type State } from "./lease.js";
import type { Session } from "./session.js";
import type { Caller } from "./transport.js";

/** How a lock is released. */
export interface ReleaseOptions {
  /** Is kept in the record for the next holder, 256 KiB at most; not for the lock of a reader or of a writer. */
  readonly data?: Uint8Array;
  /** Says that the work failed, and why. */
  readonly failed?: string;
}

export const DISPOSE: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose);

const LONGEST_REASON = 1024;
const HOUR = 3_600_000;

/**
 * A lock that this process holds. Made by `acquire` of a client or of a session, and by their semaphores
 * and locks for readers and writers.
 *
 * Call {@link check} before every side effect: it reads the clock itself, and is right where timers
 * are late. The heartbeats of a lock do not keep the process running; `run` does until the work has ended.
 */
export abstract class Lock implements AsyncDisposable {
  /** The lock that was granted: of a semaphore the slot's name, of a reader or a writer a derived name too. */
  readonly name: string;
  readonly token: number;
  /**
   * What a resource compares. Of a reader or a writer it goes with the name that was asked for; of
   * all others it is `token`, which goes with `name`.
   */
  readonly fenceToken: number;
  /** What the former holder left in the record. */
  readonly data: Uint8Array | undefined;
  /** The number of the slot of a semaphore, from 0. */
  readonly slot: number | undefined;
  /** How many slots the semaphore has. */
  readonly slots: number | undefined;
  /** Of a reader or a writer: who wrote last, and how that ended; undefined if nobody has written. */
  readonly lastWriter: LastWriter | undefined;
  readonly #ownData: boolean; // those in the record are the lock's own
  readonly #unwritten: Uint8Array | undefined;
  readonly #stopping = new AbortController();
  readonly #over = new AbortController();
  #released: Promise<void> | undefined;

  protected constructor(grant: Grant) {
    this.name = grant.name;
    this.token = grant.token;
    this.fenceToken = grant.fenceToken ?? grant.token;
    this.data = grant.data;
    this.slot = grant.slot;
    this.slots = grant.slots;
    this.lastWriter = grant.lastWriter;
    this.#ownData = grant.fenceToken !== undefined;
    this.#unwritten = grant.unwritten;
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
  abstract get asked(): AskedError | undefined;

  /** Throws a LostError, ExpiredError or ReleasedError if the holder may not act. It sends nothing. */
  check(): void {
    if (this.state() !== "held") {
      throw this.error();
    }
  }

  /** Returns the milliseconds until the right ends if no more heartbeat is confirmed. */
  abstract remaining(): number;

  /**
   * Releases the lock, so that others need not wait. Call it when the work has returned.
   *
   * Rejects with what had ended the lock before: LostError, ExpiredError; or with UncertainError if
   * no answer came for the time of a lease, under a session until that has ended. A second call ends as
   * the first. A TypeError for data that the lock cannot keep releases nothing.
   */
  async release(options: ReleaseOptions = {}): Promise<void> {
    checkData(options.data);
    if (options.data && this.#ownData) {
      throw new TypeError(`"${this.name}" keeps data of its own: release it without, and keep yours with the resource`);
    }
    this.#released ??= this.end(options);
    return this.#released;
  }

  /** Releases a lock whose holder has not acted. For the acquire. */
  giveBack(): Promise<void> {
    this.#released ??= this.end(this.#unwritten ? { data: this.#unwritten } : {});
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
   * Begins to hold the lock that answered an acquire sent after that instant. False if the grant was
   * lost. For the acquire.
   */
  abstract start(sent: number): Promise<boolean>;

  /** Ends a start that is under way. The caller releases the lock then. */
  abstract abandon(): void;

  protected abstract state(): State;

  /** Returns why the holder may not act. */
  protected abstract error(): TenureError;

  protected abstract end(options: ReleaseOptions): Promise<void>;

  /** Aborts the signals if the state says so. */
  protected tell(): void {
    const state = this.state();
    if (state === "expired" || state === "lost") {
      this.tellOver();
    } else if (state === "held" && this.asked) {
      this.#stopping.abort(this.asked);
    }
  }

  protected tellOver(): void {
    const reason = this.error();
    this.#over.abort(reason);
    this.#stopping.abort(reason);
  }
}

/** A lock with heartbeats of its own. */
export class SingleLock extends Lock {
  readonly #lease: Lease;
  readonly #clock: Clock;
  readonly #releases: Caller;
  readonly #heartbeats: Heartbeats;

  constructor(grant: Grant, stopTimeout: number, clock: Clock, beats: Caller, releases: Caller) {
    super(grant);
    const { name, token } = grant;
    this.#clock = clock;
    this.#releases = releases;
    this.#lease = new Lease(grant, stopTimeout);
    this.#heartbeats = new Heartbeats(this.#lease, clock, beats, {
      path: "/v1/heartbeat",
      body: ({ after, next }) => ({ name, token, after, next }),
      read: readHeartbeat,
      told: () => this.tell(),
    });
  }

  get asked(): AskedError | undefined {
    return this.#lease.asked;
  }

  remaining(): number {
    return this.#lease.remaining(this.#clock());
  }

  /** Holds the lock at once if the grant counts, else from the first confirmed heartbeat on. */
  start(sent: number): Promise<boolean> {
    this.#lease.granted(sent, this.#clock());
    return this.#heartbeats.start();
  }

  abandon(): void {
    this.#heartbeats.abort();
  }

  protected state(): State {
    return this.#lease.state(this.#clock());
  }

  protected error(): TenureError {
    const { refusedBy: by } = this.#lease;
    const { last } = this.#heartbeats;
    const why = { lost: by && `${JSON.stringify(by)} is there now`, expired: last && `last answer: ${last}` };
    return errorOf(`"${this.name}" (token ${this.token})`, this.state(), why);
  }

  /** Ends the heartbeats and releases the lock. */
  protected async end(options: ReleaseOptions): Promise<void> {
    const ended = ["expired", "lost"].includes(this.state()) ? this.error() : undefined;
    const release = this.#lease.release(this.#clock());
    this.abandon();
    this.tellOver();
    await this.#heartbeats.ended();
    const body = { name: this.name, token: this.token, ...leaves(options) };
    const last = await carryOut(release, this.#clock, this.#releases, "/v1/release", body, this.#heartbeats.limit);
    const lock = `"${this.name}" (token ${this.token})`;
    if (ended) {
      throw ended;
    }
    if (release.outcome === "unknown") {
      throw new UncertainError(
        `the release of ${lock} got no answer: the lock is released, or expires by itself; last answer: ${last}`,
      );
    }
    if (release.outcome === "lost") {
      throw new LostError(`${lock} was lost before it was released`);
    }
  }
}

/** Returns the error that says why the holder of what may not act. */
export function errorOf(what: string, state: State, why: { lost?: string; expired?: string } = {}): TenureError {
  switch (state) {
    case "lost":
      return new LostError(`${what} is lost${why.lost ? `: ${why.lost}` : ""}`);
    case "expired": {
      const more = why.expired ? `; ${why.expired}` : "";
      return new ExpiredError(`${what} has expired: no heartbeat was confirmed in time${more}`);
    }
    case "unconfirmed":
      return new NotConfirmedError(`${what}: no heartbeat is confirmed yet`);
    default:
      return new ReleasedError(`${what} is released`);
  }
}

/** The most bytes of data that every store keeps. */
const MOST_DATA = 256 * 1024;

/** Throws a TypeError for data that no store keeps: a release with them would be repeated in vain. */
export function checkData(data?: Uint8Array): void {
  if (data && data.length > MOST_DATA) {
    throw new TypeError(`data has ${data.length} bytes: at most ${MOST_DATA} are allowed`);
  }
}

/** Returns what a release says beside the lock. */
export function leaves(options: ReleaseOptions): object {
  return {
    ...(options.data && { data: Buffer.from(options.data).toString("base64") }),
    ...(options.failed !== undefined && { failed: options.failed.slice(0, LONGEST_REASON) }),
  };
}

/** Calls the work with the lock or session once it is there, and ends that then. It keeps the process running. */
export async function runUnder<L extends Lock | Session, T>(
  acquiring: Promise<L>,
  work: (held: L) => Promise<T> | T,
): Promise<T> {
  const running = setInterval(() => undefined, HOUR);
  try {
    const held = await acquiring;
    let result: T;
    try {
      result = await work(held);
    } catch (error) {
      await held.close(error ?? new Error("the work failed")).catch(() => undefined); // the work's error is the cause
      throw error;
    }
    await held[DISPOSE]();
    return result;
  } finally {
    clearInterval(running);
  }
}

/** Returns what the record says of work that ended in an error; undefined if it did not fail. */
function failure(error: unknown): string | undefined {
  if (error === undefined || error instanceof AskedError || error instanceof LostError) {
    return undefined;
  }
  return (error instanceof Error ? `${error.name}: ${error.message}` : String(error)).replace(/\p{C}/gu, " ");
}
