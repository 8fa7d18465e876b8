// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** The client: it acquires locks. @module */

import { hostname } from "node:os";

import { describe, heldBy, readAcquire, type Answer, type Fields, type Reply } from "./answers.js";
import { greaterClock, type Clock } from "./clock.js";
import { ProblemError, UnavailableError, type HeldError, type TenureError } from "./errors.js";
import { Events } from "./events.js";
import { randomPart, type Grant } from "./lease.js";
import { exchange, Lock, sleep } from "./lock.js";
import { addresses, Backoff, Caller, Credentials, defaultTransport, type TlsOptions, type Transport } from "./transport.js";

/** What a client is made of. */
export interface ClientOptions {
  /** The bearer token. */
  readonly token?: string;
  /** A file that has the bearer token. It is read again for each call. */
  readonly tokenFile?: string;
  /** Certificates for https. */
  readonly tls?: TlsOptions;
  /** Sends the calls, in place of fetch and node:http. */
  readonly transport?: Transport;
  /** Tells elapsed time, suspends included, in milliseconds. */
  readonly clock?: Clock;
}

/** How a lock is acquired. Times are in milliseconds. */
export interface AcquireOptions {
  /** The name that people see; by default host, process id and a random part. */
  readonly owner?: string;
  /** How long to wait for the lock: 0 only tries; by default without an end. */
  readonly waitMs?: number;
  /** Is shown beside the owner. */
  readonly label?: string;
  /** Is put into the record. */
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
}

const LONGEST_WAIT = 20_000; // of one call, in milliseconds: the server's limit
const MARGIN = 10_000; // how long an answer may take beyond the wait
const SILENCE = 15_000; // without an answer, before a warning says so
const STREAMS = 2; // that may fail in a row, before the acquire asks for none any more

// The service has not done what was asked, but a retry may succeed.
const AGAIN = new Set(["unknown", "unavailable", "limited", "unanswered", "lost"]);

/**
 * Acquires locks through the servers of a lock service.
 *
 * An address is `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`. Any server serves; a call
 * that has no answer goes to the next one.
 */
export class Client {
  readonly #servers: string[];
  readonly #credentials: Credentials;
  readonly #transport: Transport;
  readonly #clock: Clock;

  constructor(servers: string | readonly string[], options: ClientOptions = {}) {
    this.#servers = addresses(servers);
    this.#credentials = new Credentials(options.token, options.tokenFile);
    this.#transport = options.transport ?? defaultTransport(options.tls);
    this.#clock = options.clock ?? greaterClock();
  }

  /**
   * Acquires the lock and returns it held.
   *
   * Rejects with HeldError if another holder has it until the wait is over, UnavailableError if no
   * server answered, ProblemError if the call was refused (for example for lack of rights), TokenError if
   * a number cannot hold the token, and with the reason of the signal. A server whose certificate is refused,
   * or that speaks another protocol, answers no later call either: if all are such, it rejects with
   * UnavailableError at once. After 15 s without an answer console.warn says so, once.
   *
   * The lock does not keep the process running: a process with nothing else to do ends, and the lock
   * expires. {@link run} keeps it running.
   */
  acquire(name: string, options: AcquireOptions = {}): Promise<Lock> {
    return this.#acquire(name, options, false);
  }

  async #acquire(name: string, options: AcquireOptions, keepsRunning: boolean): Promise<Lock> {
    const { waitMs, stopTimeoutMs, signal } = options;
    if (!name) {
      throw new TypeError("the lock's name is empty");
    }
    checkText("the lock's name", name);
    checkText("owner", options.owner ?? "");
    checkText("label", options.label ?? "");
    if (waitMs !== undefined && !(waitMs >= 0)) {
      throw new TypeError(`waitMs is ${waitMs}: want milliseconds, or 0 to try`);
    }
    if (stopTimeoutMs !== undefined && !(stopTimeoutMs > 0)) {
      throw new TypeError(`stopTimeoutMs is ${stopTimeoutMs}: want more than 0`);
    }
    signal?.throwIfAborted();
    const caller = (): Caller => new Caller(this.#servers, this.#credentials, this.#transport);
    const acquiring = new Acquiring(name, options, caller, this.#clock, keepsRunning);
    const abort = (): void => acquiring.abort();
    signal?.addEventListener("abort", abort, { once: true });
    try {
      return await acquiring.run();
    } finally {
      signal?.removeEventListener("abort", abort);
    }
  }

  /**
   * Acquires the lock, calls the work with it, releases the lock, and returns what the work did. The
   * work must end when `lock.signal` is aborted. Rejects with LostError if the lock was lost before
   * the work was done.
   */
  async run<T>(name: string, work: (lock: Lock) => Promise<T> | T, options: AcquireOptions = {}): Promise<T> {
    const lock = await this.#acquire(name, options, true);
    let result: T;
    try {
      result = await work(lock);
    } catch (error) {
      await lock.close(error ?? new Error("the work failed"));
      throw error;
    }
    await lock.close(undefined);
    return result;
  }
}

/** Refuses half of a surrogate pair, as JSON and slices can make it: it is no character. */
export function checkText(what: string, text: string): void {
  const at = text.search(/\p{Surrogate}/u);
  if (at >= 0) {
    const half = text.charCodeAt(at).toString(16).toUpperCase();
    throw new TypeError(`${what} has U+${half} at ${at}, half of a character: want Unicode text`);
  }
}

/** An acquire under way. A grant that comes after abort is given back. */
class Acquiring {
  readonly #caller: Caller;
  readonly #aborted = new AbortController();
  readonly #until: number;
  #tries: number; // calls that may fail before a try without a wait gives up
  #backoff = new Backoff();
  #held: HeldError | undefined;
  #failures = 0; // in a row: calls without an answer, or without the store's
  #wrong = 0; // of them at last, by a fault that stays
  #silent: number | undefined; // since when, of performance.now
  #warned = false;
  #failedStreams = 0; // in a row
  #answered = true; // the last call
  #starting: Lock | undefined; // its first heartbeat is under way

  constructor(
    readonly name: string,
    readonly options: AcquireOptions,
    readonly caller: () => Caller,
    readonly clock: Clock,
    readonly keepsRunning: boolean,
  ) {
    this.#caller = caller();
    this.#tries = this.#caller.servers.length;
    this.#until = performance.now() + (options.waitMs ?? Infinity);
  }

  abort(): void {
    this.#aborted.abort();
    this.#caller.abort();
    this.#starting?.abandon();
  }

  async run(): Promise<Lock> {
    const body = this.#body();
    // Without a first try the waiting call would report only the next holder.
    let wait = this.options.waiting ? 0 : LONGEST_WAIT;
    for (;;) {
      const began = performance.now();
      wait = Math.floor(Math.min(wait, this.#left()));
      const sent = this.clock();
      const answer = await this.#ask({ ...body, wait_ms: wait }, wait);
      if (this.#aborted.signal.aborted && answer.is === "granted") {
        await giveBack(this.#lock(answer.grant));
      }
      this.options.signal?.throwIfAborted();
      if (answer.is === "unknown" && answer.error) {
        throw answer.error;
      }
      if (answer.is === "granted") {
        const lock = await this.#hold(answer.grant, sent);
        if (lock) {
          return lock;
        }
        await this.#pause(0, new UnavailableError("the grant was lost before a heartbeat"));
      } else if (answer.is === "problem" && answer.kind === "held") {
        this.#failures = this.#wrong = 0;
        this.#waitFor(heldBy(answer.more, this.name));
        if (performance.now() - began < wait / 2) {
          await this.#pause(0); // it had no patience; we have not to hurry
        } else {
          this.#backoff = new Backoff();
        }
      } else if (answer.is === "problem" && !AGAIN.has(answer.kind)) {
        throw new ProblemError(answer.kind, answer.status, answer.detail);
      } else {
        const least = answer.is === "problem" ? answer.retryAfterMs : 0;
        const error = new UnavailableError(`no answer: ${describe(answer)}`);
        this.#fails(answer, error);
        await this.#pause(least, error);
      }
      this.options.signal?.throwIfAborted();
      wait = LONGEST_WAIT;
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
        this.#met(heldBy(said, this.name));
      } catch (error) {
        thrown = { error }; // by the program: the stream ends, and so does the acquire
        throw error;
      }
    };
    const events = streams ? new Events(tell) : undefined;
    const read = (reply: Reply): Answer => readAcquire(reply, this.name);
    const answer = await exchange(this.#caller, "/v1/acquire", body, wait + MARGIN, read, events);
    if (thrown) {
      throw (thrown as { error: unknown }).error;
    }
    this.#answered = answer.is !== "unknown";
    this.#hear(answer, began);
    if (streams) {
      this.#failedStreams = this.#answered ? 0 : this.#failedStreams + 1;
    }
    return answer;
  }

  /** Counts an unanswered call; throws the error if no call will be answered. */
  #fails(answer: Answer, error: UnavailableError): void {
    this.#failures++;
    this.#wrong = answer.is === "unknown" && answer.permanent ? this.#wrong + 1 : 0;
    if (this.#wrong >= this.#caller.servers.length) {
      throw error;
    }
  }

  /** Warns once if no server answers for some time. */
  #hear(answer: Answer, began: number): void {
    if (answer.is !== "unknown") {
      if (this.#warned) {
        console.warn(`acquire "${this.name}": the service answers again`);
      }
      this.#silent = undefined;
      this.#warned = false;
      return;
    }
    this.#silent ??= began;
    const silence = performance.now() - this.#silent;
    if (silence >= SILENCE && !this.#warned) {
      this.#warned = true;
      console.warn(`acquire "${this.name}": no answer for ${Math.round(silence / 1000)} s: ${answer.why}; trying again`);
    }
  }

  #left(): number {
    return Math.max(0, this.#until - performance.now());
  }

  #waitFor(held: HeldError): void {
    if (this.#left() === 0) {
      throw held;
    }
    this.#met(held);
  }

  /** Reports a holder, once. */
  #met(held: HeldError): void {
    const fresh = this.#held?.holder !== held.holder || this.#held.token !== held.token;
    this.#held = held;
    if (fresh) {
      this.options.waiting?.(held);
    }
  }

  /** Waits before the next call; throws the error if there is no time for one. */
  async #pause(least: number, error?: TenureError): Promise<void> {
    this.#tries--;
    const left = this.#left();
    if (left === 0) {
      if (this.#tries > 0 && error) {
        return; // another server may know better
      }
      if (error && this.#failures >= this.#caller.servers.length) {
        throw error; // the present holder is not known
      }
      throw this.#held ?? error ?? new UnavailableError("no answer");
    }
    const asked = Math.min(least, LONGEST_WAIT) * (1 + Math.random() / 5);
    await sleep(Math.min(Math.max(this.#backoff.next(), asked), left), this.#aborted.signal);
  }

  /** Returns the lock of a grant once it is held; undefined if it was lost before. */
  async #hold(grant: Grant, sent: number): Promise<Lock | undefined> {
    const lock = (this.#starting = this.#lock(grant));
    const held = await lock.start(sent);
    this.#starting = undefined;
    if (held && !this.#aborted.signal.aborted) {
      return lock;
    }
    await giveBack(lock);
    return undefined;
  }

  #lock(grant: Grant): Lock {
    const { stopTimeoutMs = grant.leaseMs } = this.options;
    return new Lock(grant, stopTimeoutMs, this.clock, this.caller(), this.caller(), this.keepsRunning);
  }

  #body(): object {
    const { owner, label, data } = this.options;
    const host = hostname();
    return {
      name: this.name,
      owner: owner || `${host}-${process.pid}-${randomPart().slice(0, 6).toLowerCase()}`,
      host,
      ...(label && { label }),
      ...(data && { data: Buffer.from(data).toString("base64") }),
    };
  }
}

/** Releases a lock that no caller waits for any more. */
async function giveBack(lock: Lock): Promise<void> {
  await lock.release().catch(() => undefined); // it is freed, or expires
}
