// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** An acquire under way, and how calls are tried until a server answers. @module */

import { hostname } from "node:os";

import {
  describe,
  heldBy,
  readAcquire,
  readDone,
  repeats,
  type Answer,
  type Fields,
  type Kind,
  type Problem,
  type Reply,
} from "./answers.js";
import type { Clock } from "./clock.js";
import { ProblemError, UnavailableError, type HeldError, type TenureError } from "./errors.js";
import { Events } from "./events.js";
import { exchange, sleep } from "./heartbeats.js";
import { randomPart, type Grant } from "./lease.js";
import { checkData, type Lock } from "./lock.js";
import { Backoff, type Caller } from "./transport.js";

/** How a lock is acquired. Times are in milliseconds. */
export interface AcquireOptions {
  /** The name that people see; by default host, process id and a random part. */
  readonly owner?: string;
  /** How long to wait for the lock: 0 only tries; by default without an end. */
  readonly waitMs?: number;
  /** Is shown beside the owner. */
  readonly label?: string;
  /** Is put into the record, 256 KiB at most; not for the lock of a reader or of a writer. */
  readonly data?: Uint8Array;
  /** How long the work may go on after a request to stop; by default the lease duration. */
  readonly stopTimeoutMs?: number;
  /**
   * Is called with each new holder that the acquire waits for, as soon as the service sees it. While it
   * runs nothing of the acquire goes on. What it throws ends the acquire.
   */
  readonly waiting?: (held: HeldError) => void;
  /** Ends the acquire. It has no effect on a lock that is held. */
  readonly signal?: AbortSignal;
  /** Keeps the former holder's term, for `tenure history` and the dashboard: one more write a term. */
  readonly history?: boolean;
}

/**
 * What is wanted: a plain lock; a slot of a semaphore; the right to read, or to write. `fields` is what the
 * acquire says of it.
 */
export interface Want {
  readonly name: string;
  readonly kind?: Kind;
  readonly fields?: object;
}

/** What all locks of a client need. */
export interface Context {
  /** Returns a caller of its own. */
  readonly caller: () => Caller;
  readonly clock: Clock;
}

const LONGEST_WAIT = 20_000; // of one call, in milliseconds: the server's limit
export const MARGIN = 10_000; // how long an answer may take beyond the wait
const SILENCE = 15_000; // without an answer, before a warning says so
const DRAIN_PART = 3; // of a lease, for one wait until readers are gone
const STREAMS = 2; // that may fail in a row, before the acquire asks for none any more

// The service has not done what was asked, but a retry may succeed.
const AGAIN = new Set(["unknown", "unavailable", "limited", "unanswered", "lost"]);

/** Refuses half of a surrogate pair, as JSON and slices can make it: it is no character. */
export function checkText(what: string, text: string): void {
  const at = text.search(/\p{Surrogate}/u);
  if (at >= 0) {
    const half = text.charCodeAt(at).toString(16).toUpperCase();
    throw new TypeError(`${what} has U+${half} at ${at}, half of a character: want Unicode text`);
  }
}

/** Says whether a call that got the problem may succeed later. */
export function mayPass(problem: Problem): boolean {
  return AGAIN.has(problem.kind);
}

/** Returns who the holder is, for an acquire or for the opening of a session. */
export function holderOf(options: Pick<AcquireOptions, "owner" | "label" | "data">): { readonly owner: string } {
  const { owner, label, data } = options;
  const host = hostname();
  const holder = {
    owner: owner || `${host}-${process.pid}-${randomPart().slice(0, 6).toLowerCase()}`,
    host,
    ...(label && { label }),
    ...(data && { data: Buffer.from(data).toString("base64") }),
  };
  return holder;
}

/** Throws a TypeError for a name that no lock can have. */
export function checkName(name: string): void {
  if (!name) {
    throw new TypeError("the lock's name is empty");
  }
  checkText("the lock's name", name);
}

/** Throws a TypeError for options that make no sense. */
export function checkOptions({ owner, label, data, waitMs, stopTimeoutMs }: AcquireOptions): void {
  checkText("owner", owner ?? "");
  checkText("label", label ?? "");
  checkData(data);
  if (waitMs !== undefined && !(waitMs >= 0)) {
    throw new TypeError(`waitMs is ${waitMs}: want milliseconds, or 0 to try`);
  }
  if (stopTimeoutMs !== undefined && !(stopTimeoutMs > 0)) {
    throw new TypeError(`stopTimeoutMs is ${stopTimeoutMs}: want more than 0`);
  }
}

/** The tries of something: how long, at which pauses, and when it is hopeless. */
export class Tries {
  readonly #until: number;
  #left: number; // calls that may fail before a try without a wait gives up
  #backoff = new Backoff();
  #failures = 0; // in a row: calls without an answer, or without the store's
  #wrong = 0; // of them at last, by a fault that stays
  #silent: number | undefined; // since when, of performance.now
  #warned = false;

  constructor(
    readonly what: string,
    readonly servers: number,
    waitMs: number | undefined,
    readonly ended: AbortSignal,
  ) {
    this.#left = servers;
    this.#until = performance.now() + (waitMs ?? Infinity);
  }

  /** Returns how long to wait yet, in milliseconds. */
  left(): number {
    return Math.max(0, this.#until - performance.now());
  }

  /** Warns once if no server answers for some time. */
  hear(answer: Answer, began: number): void {
    if (answer.is !== "unknown") {
      if (this.#warned) {
        console.warn(`${this.what}: the service answers again`);
      }
      this.#silent = undefined;
      this.#warned = false;
      return;
    }
    this.#silent ??= began;
    const silence = performance.now() - this.#silent;
    if (silence >= SILENCE && !this.#warned) {
      this.#warned = true;
      console.warn(`${this.what}: no answer for ${Math.round(silence / 1000)} s: ${answer.why}; trying again`);
    }
  }

  /** Records that the store has answered. */
  answered(): void {
    this.#failures = this.#wrong = 0;
  }

  /** Has the next pause be a short one. */
  calm(): void {
    this.#backoff = new Backoff();
  }

  /** Counts an unanswered call and waits before the next; throws the error if no call will be answered. */
  async failed(answer: Answer, held?: HeldError): Promise<void> {
    const error = new UnavailableError(`no answer: ${describe(answer)}`);
    this.#failures++;
    this.#wrong = answer.is === "unknown" && answer.permanent ? this.#wrong + 1 : 0;
    if (this.#wrong >= this.servers) {
      throw error;
    }
    await this.pause(answer.is === "problem" ? answer.retryAfterMs : 0, error, held);
  }

  /** Waits before the next call; throws the error if there is no time for one. */
  async pause(least: number, error?: TenureError, held?: HeldError): Promise<void> {
    this.#left--;
    const left = this.left();
    if (left === 0) {
      if (this.#left > 0 && error) {
        return; // another server may know better
      }
      if (error && this.#failures >= this.servers) {
        throw error; // the present holder is not known
      }
      throw held ?? error ?? new UnavailableError("no answer");
    }
    const asked = Math.min(least, LONGEST_WAIT) * (1 + Math.random() / 5);
    await sleep(Math.min(Math.max(this.#backoff.next(), asked), left), this.ended);
  }
}

/** An acquire under way. A grant that comes after one of the signals is given back. */
export class Acquiring {
  readonly #caller: Caller;
  readonly #aborted = new AbortController();
  readonly #tries: Tries;
  #held: HeldError | undefined;
  #failedStreams = 0; // in a row
  #answered = true; // the last call
  #starting: Lock | undefined; // it is not held yet

  constructor(
    readonly want: Want,
    readonly options: AcquireOptions,
    readonly holder: object,
    readonly ends: readonly AbortSignal[],
    readonly context: Context,
    /** Returns the lock of a grant, which is to be started. */
    readonly lockOf: (grant: Grant) => Lock,
  ) {
    this.#caller = context.caller();
    const { length } = this.#caller.servers;
    this.#tries = new Tries(`acquire "${want.name}"`, length, options.waitMs, this.#aborted.signal);
  }

  async run(): Promise<Lock> {
    this.#throwIfAborted();
    const abort = (): void => {
      this.#aborted.abort();
      this.#caller.abort();
      this.#starting?.abandon();
    };
    this.ends.forEach((signal) => signal.addEventListener("abort", abort, { once: true }));
    try {
      return await this.#run();
    } finally {
      this.ends.forEach((signal) => signal.removeEventListener("abort", abort));
    }
  }

  #throwIfAborted(): void {
    this.ends.forEach((signal) => signal.throwIfAborted());
  }

  async #run(): Promise<Lock> {
    const { want, options } = this;
    const body = { name: want.name, ...this.holder, ...want.fields, ...(options.history && { history: true }) };
    // Without a first try the waiting call would report only the next holder.
    let wait = this.options.waiting ? 0 : LONGEST_WAIT;
    for (;;) {
      const began = performance.now();
      wait = Math.floor(Math.min(wait, this.#tries.left()));
      const sent = this.context.clock();
      const answer = await this.#ask({ ...body, wait_ms: wait }, wait);
      if (this.#aborted.signal.aborted && answer.is === "granted") {
        await giveBack(this.lockOf(answer.grant), answer.grant);
      }
      this.#throwIfAborted();
      if (answer.is === "unknown" && answer.error) {
        throw answer.error;
      }
      if (answer.is === "granted") {
        const lock = await this.#hold(answer.grant, sent);
        if (lock) {
          return lock;
        }
        await this.#tries.pause(0, new UnavailableError("the grant was lost before it was held"), this.#held);
      } else if (answer.is === "problem" && answer.kind === "held") {
        await this.#wait(answer, began, wait);
      } else if (answer.is === "problem" && !mayPass(answer)) {
        throw new ProblemError(answer.kind, answer.status, answer.detail);
      } else {
        await this.#tries.failed(answer, this.#held);
      }
      this.#throwIfAborted();
      wait = LONGEST_WAIT;
    }
  }

  /** Goes on after an answer that another holder is there; throws it if the wait is over. */
  async #wait(answer: Problem, began: number, wait: number): Promise<void> {
    const held = heldBy(answer.more, this.want.name);
    this.#tries.answered();
    if (this.#tries.left() === 0) {
      throw held;
    }
    this.#met(held);
    if (performance.now() - began < wait / 2) {
      await this.#tries.pause(0, undefined, held); // it had no patience; we have not to hurry
    } else {
      this.#tries.calm();
    }
  }

  /**
   * Makes one call. It is a stream if the caller wants to know the holders; the call after an unanswered one
   * is not, and after several failed streams no call is.
   */
  async #ask(body: object, wait: number): Promise<Answer> {
    const began = performance.now();
    const streams = this.options.waiting && wait > 0 && this.#answered && this.#failedStreams < STREAMS;
    let thrown: { error: unknown } | undefined;
    const tell = (said: Fields): void => {
      try {
        this.#met(heldBy(said, this.want.name));
      } catch (error) {
        thrown = { error }; // by the program: the stream ends, and so does the acquire
        throw error;
      }
    };
    const events = streams ? new Events(tell) : undefined;
    const read = (reply: Reply): Answer => readAcquire(reply, this.want.name, this.want.kind);
    const answer = await exchange(this.#caller, "/v1/acquire", body, wait + MARGIN, read, events);
    if (thrown) {
      throw (thrown as { error: unknown }).error;
    }
    this.#answered = answer.is !== "unknown";
    this.#tries.hear(answer, began);
    if (streams) {
      this.#failedStreams = this.#answered ? 0 : this.#failedStreams + 1;
    }
    return answer;
  }

  /** Reports a holder, once. */
  #met(held: HeldError): void {
    const fresh = this.#held?.holder !== held.holder || this.#held.token !== held.token;
    this.#held = held;
    if (fresh) {
      this.options.waiting?.(held);
    }
  }

  /** Returns the lock of a grant once it is held; undefined if it was lost before. */
  async #hold(grant: Grant, sent: number): Promise<Lock | undefined> {
    const lock = (this.#starting = this.lockOf(grant));
    try {
      const held = (await lock.start(sent)) && (!grant.drain || (await this.#drained(lock, grant)));
      if (held && !this.#aborted.signal.aborted) {
        return lock;
      }
    } catch (error) {
      await giveBack(lock, grant);
      throw error;
    } finally {
      this.#starting = undefined;
    }
    await giveBack(lock, grant);
    return undefined;
  }

  /** Waits until the readers are gone; false if the gate is lost, or its holder was asked to stop. */
  async #drained(gate: Lock, grant: Grant): Promise<boolean> {
    const { name, token } = gate;
    const longest = grant.leaseMs / DRAIN_PART; // so that a loss is seen soon
    while (!gate.signal.aborted && !this.#aborted.signal.aborted) {
      const began = performance.now();
      const wait = Math.floor(Math.min(longest, LONGEST_WAIT, this.#tries.left()));
      const body = { name, token, wait_ms: wait };
      const answer = await exchange(this.#caller, "/v1/drain", body, wait + longest, readDone);
      this.#tries.hear(answer, began);
      if (answer.is === "done") {
        return gate.remaining() > 0;
      }
      if (answer.is === "problem" && answer.kind === "lost") {
        return false;
      }
      if (answer.is === "problem" && answer.kind === "held") {
        await this.#wait(answer, began, wait);
      } else if (answer.is === "problem" && !repeats(answer)) {
        throw new ProblemError(answer.kind, answer.status, answer.detail);
      } else {
        await this.#tries.failed(answer, this.#held);
      }
    }
    return false;
  }
}

/**
 * Releases a lock that no caller waits for any more, and whose holder has not acted. It waits for
 * a fifth of a lease: the lock is freed, or expires.
 */
export async function giveBack(lock: Lock, { leaseMs }: Grant): Promise<void> {
  await Promise.race([lock.giveBack().catch(() => undefined), sleep(leaseMs / 5, undefined, false)]);
}
