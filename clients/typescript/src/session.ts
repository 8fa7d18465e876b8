// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** A session: one heartbeat that keeps many locks alive. @module */

import { setMaxListeners } from "node:events";

import {
  Acquiring,
  checkName,
  checkOptions,
  giveBack,
  holderOf,
  MARGIN,
  mayPass,
  Tries,
  type AcquireOptions,
  type Context,
  type Want,
} from "./acquire.js";
import {
  describe,
  readOpen,
  readResults,
  readSessionHeartbeat,
  repeats,
  type Answer,
  type Confirmed,
  type Problem,
  type Reply,
} from "./answers.js";
import {
  ExpiredError,
  LostError,
  NoSessionsError,
  ProblemError,
  UnavailableError,
  UncertainError,
  type AskedError,
  type TenureError,
} from "./errors.js";
import { carryOut, exchange, Heartbeats, sleep } from "./heartbeats.js";
import type { Grant, Opened, State } from "./lease.js";
import { DISPOSE, errorOf, leaves, Lock, type ReleaseOptions } from "./lock.js";
import { Locks } from "./locks.js";
import { Attachment, SessionLease } from "./sessionlease.js";
import { Backoff, type Caller } from "./transport.js";

/** How a session is opened: `waitMs` is for how long to try, by default without an end. */
export type SessionOptions = Pick<AcquireOptions, "owner" | "label" | "data" | "waitMs" | "signal">;

/** How a lock is acquired under a session, whose owner it has. */
export type SessionAcquireOptions = Omit<AcquireOptions, "owner">;

const MOST_LOCKS = 100; // of one call

/**
 * A session that this process holds. Made by `Client.session`.
 *
 * All its locks have one deadline, that of the session, and end with it at once. Operators still ask for
 * single locks: the others go on. The session does not keep the process running; `run` does until
 * the work has ended.
 */
export class Session extends Locks<SessionAcquireOptions> implements AsyncDisposable {
  readonly id: string;
  readonly owner: string;
  readonly #held: Held;
  readonly #context: Context;
  #closed: Promise<void> | undefined;

  /** For `Client.session`. */
  constructor(held: Held, owner: string, context: Context) {
    super();
    this.id = held.id;
    this.owner = owner;
    this.#held = held;
    this.#context = context;
  }

  /** Is aborted when the session is not held any more: lost, expired, or its closing has begun. */
  get over(): AbortSignal {
    return this.#held.over.signal;
  }

  /** Throws a LostError, ExpiredError or ReleasedError if no lock of the session is held. It sends nothing. */
  check(): void {
    if (this.#held.state() !== "held") {
      throw this.#held.error();
    }
  }

  /** Returns the milliseconds until all locks end if no more heartbeat is confirmed. */
  remaining(): number {
    return this.#held.remaining();
  }

  /**
   * Acquires all of the locks or none, and returns them in the order of their names here. It takes one after the
   * other, in an order that is the same for all programs, so that two of them never wait for each other.
   * The errors are those of {@link acquire}.
   */
  async acquireAll(names: readonly string[], options: SessionAcquireOptions = {}): Promise<Lock[]> {
    names.forEach(checkName);
    checkOptions(options);
    const sorted = [...new Set(names)].sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
    if (sorted.length !== names.length) {
      throw new TypeError(`${names.length} names are ${sorted.length} locks: give each name once`);
    }
    const until = performance.now() + (options.waitMs ?? Infinity);
    for (const backoff = new Backoff(); ; await sleep(backoff.next())) {
      const left = Math.max(0, until - performance.now());
      const locks = await this.#all(sorted, options.waitMs === undefined ? options : { ...options, waitMs: left });
      if (locks) {
        return names.map((name) => locks[sorted.indexOf(name)]!);
      }
      if (performance.now() >= until) {
        throw new LostError(`a lock was lost before it was attached to session ${this.id}: no lock is held`);
      }
    }
  }

  /**
   * Ends the right to act under all locks at once, waits until the work of each {@link run} has returned, for a
   * lease at most, and frees all locks by one call. If work goes on the session is not closed, and expires.
   *
   * Rejects with what had ended the session before: LostError, ExpiredError; or with UncertainError if the session
   * expires, or no answer came for the time of a lease. A second call ends as the first.
   */
  close(): Promise<void> {
    this.#closed ??= this.#held.close();
    return this.#closed;
  }

  /** Closes the session at the end of an `await using` block. Closing without an answer is no failure. */
  async [DISPOSE](): Promise<void> {
    await this.close().catch((error: unknown) => {
      if (!(error instanceof UncertainError)) {
        throw error;
      }
    });
  }

  protected async take(want: Want, options: SessionAcquireOptions = {}): Promise<Lock> {
    checkName(want.name);
    checkOptions(options);
    this.check();
    const ends = options.signal ? [options.signal, this.over] : [this.over];
    const lockOf = (grant: Grant): Lock => new SessionLock(grant, options, this.#held);
    return new Acquiring(want, options, this.#holder(options), ends, this.#context, lockOf).run();
  }

  protected override during<L extends Lock, T>(work: (lock: L) => Promise<T> | T): (lock: L) => Promise<T> {
    return (lock) => this.#held.during(async () => work(lock));
  }

  #holder(options: SessionAcquireOptions): object {
    return holderOf({ ...options, owner: this.owner });
  }

  /** Acquires and attaches all; undefined if one was lost before, and none is held. */
  async #all(sorted: readonly string[], options: SessionAcquireOptions): Promise<Lock[] | undefined> {
    this.check();
    const held = this.#held;
    const locks: SessionLock[] = [];
    const granted: SessionLock[] = []; // and not attached
    const control = new AbortController();
    const abort = (): void => control.abort(options.signal?.reason);
    options.signal?.throwIfAborted();
    options.signal?.addEventListener("abort", abort, { once: true });
    let timer: NodeJS.Timeout | undefined;
    let failed: { error: unknown } | undefined;
    let attaching: Promise<void> = Promise.resolve();
    const attach = (): void => {
      clearTimeout(timer);
      const some = granted.splice(0);
      attaching = attaching
        .then(() => held.attach(some, control.signal))
        .catch((error: unknown) => void (failed ??= { error }))
        .then(() => {
          if (!some.every((lock) => lock.attached())) {
            control.abort(); // the acquire that is under way
          }
        });
    };
    try {
      for (const name of sorted) {
        const lockOf = (grant: Grant): SessionLock => {
          const lock = new SessionLock(grant, options, held, true);
          locks.push(lock);
          return lock;
        };
        const ends = [control.signal, this.over];
        await new Acquiring({ name }, options, this.#holder(options), ends, this.#context, lockOf).run();
        granted.push(locks.at(-1)!);
        if (granted.length === 1) {
          timer = setTimeout(attach, held.limit); // the next one may have to wait
        } else if (granted.length === MOST_LOCKS) {
          attach();
        }
      }
      attach();
      await attaching;
      control.signal.throwIfAborted();
      return locks;
    } catch (error) {
      clearTimeout(timer);
      const lost = control.signal.aborted && !options.signal?.aborted && !failed;
      control.abort();
      await attaching;
      await Promise.all(locks.map((lock) => giveBack(lock, lock.grant)));
      this.over.throwIfAborted();
      if (lost) {
        return undefined;
      }
      throw failed ? (failed as { error: unknown }).error : error;
    } finally {
      options.signal?.removeEventListener("abort", abort);
    }
  }
}

/** Opens a session and returns it held. A session that is lost before its first heartbeat is followed by another. */
export async function openSession(options: SessionOptions, context: Context): Promise<Session> {
  checkOptions(options);
  const { signal, waitMs } = options;
  const holder = holderOf(options);
  const caller = context.caller();
  const ended = new AbortController();
  const tries = new Tries("open a session", caller.servers.length, waitMs, ended.signal);
  let starting: Held | undefined;
  const abort = (): void => {
    ended.abort();
    caller.abort();
    starting?.abort();
  };
  signal?.throwIfAborted();
  signal?.addEventListener("abort", abort, { once: true });
  try {
    for (;;) {
      const began = performance.now();
      const sent = context.clock();
      const answer = await exchange(caller, "/v1/sessions/open", holder, MARGIN, readOpen);
      tries.hear(answer, began);
      if (answer.is === "opened") {
        starting = new Held(answer.opened, sent, context);
        if ((await starting.start()) && !ended.signal.aborted) {
          return new Session(starting, holder.owner, context);
        }
        void starting.close().catch(() => undefined); // it expires anyway
        signal?.throwIfAborted();
        await tries.pause(0, new UnavailableError("the session was lost before its first heartbeat was confirmed"));
      } else if (answer.is === "problem" && !mayPass(answer)) {
        const { kind, status, detail } = answer;
        throw new (kind === "no-sessions" ? NoSessionsError : ProblemError)(kind, status, detail);
      } else {
        signal?.throwIfAborted();
        await tries.failed(answer);
      }
      signal?.throwIfAborted();
    }
  } finally {
    signal?.removeEventListener("abort", abort);
  }
}

/** A session's heartbeats, its locks, and the calls about these. */
class Held {
  readonly id: string;
  readonly over = new AbortController();
  readonly lease: SessionLease;
  readonly #context: Context;
  readonly #heartbeats: Heartbeats;
  readonly #calls: Caller;
  readonly #locks = new Set<SessionLock>(); // granted, and not known to be released
  readonly #works = new Set<Promise<unknown>>();
  #closing = false;

  /** The opening was sent after that instant. */
  constructor(opened: Opened, sent: number, context: Context) {
    this.id = opened.session;
    this.lease = new SessionLease(opened, sent);
    setMaxListeners(0, this.over.signal); // each acquire that is under way listens
    this.#context = context;
    this.#calls = context.caller();
    this.#heartbeats = new Heartbeats(this.lease, context.clock, context.caller(), {
      path: "/v1/sessions/heartbeat",
      body: (heartbeat) => {
        const { after, next } = heartbeat;
        const answered = this.lease.answered(heartbeat);
        return { session: this.id, after, next, ...(answered.length > 0 && { answered }) };
      },
      read: readSessionHeartbeat,
      told: (answer) => this.#told(answer),
    });
  }

  /** The limit of a call, in milliseconds. */
  get limit(): number {
    return this.#heartbeats.limit;
  }

  now(): number {
    return this.#context.clock();
  }

  state(): State {
    return this.#closing ? "released" : this.lease.state(this.now());
  }

  remaining(): number {
    return this.state() === "held" ? this.lease.remaining(this.now()) : 0;
  }

  error(): TenureError {
    const { last } = this.#heartbeats;
    const state = this.lease.state(this.now());
    const ended = state === "expired" || state === "lost";
    return errorOf(`session ${this.id}`, ended ? state : this.state(), { expired: last && `last answer: ${last}` });
  }

  /** Sends the first heartbeat of the session, and goes on. False if the session was lost. */
  start(): Promise<boolean> {
    return this.#heartbeats.start();
  }

  /** Ends a start that is under way. */
  abort(): void {
    this.#heartbeats.abort();
  }

  add(lock: SessionLock): void {
    this.#locks.add(lock);
    this.lease.add(lock.attachment);
  }

  forget(lock: SessionLock): void {
    this.#locks.delete(lock);
  }

  /** Calls the work, and has the closing wait for it. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    const working = work();
    const ended = working.catch(() => undefined);
    this.#works.add(ended);
    void ended.then(() => this.#works.delete(ended));
    return working;
  }

  /**
   * Attaches granted locks, and returns when each is attached or has ended, or the signal is aborted. A call
   * without an answer is made again as it was, for the locks that have no result yet.
   */
  async attach(locks: readonly SessionLock[], signal: AbortSignal): Promise<void> {
    const { beat } = this.lease;
    const backoff = new Backoff();
    for (;;) {
      const open = locks.filter((lock) => lock.attachment.send(this.now()));
      if (open.length === 0 || this.#closing || signal.aborted) {
        break;
      }
      const names = open.map((lock) => lock.name);
      const body = { session: this.id, beat, locks: open.map((lock) => lock.attachment.call()) };
      const read = (reply: Reply): Answer => readResults(reply, names);
      const answer = await exchange(this.#calls, "/v1/sessions/attach", body, this.limit, read);
      const now = this.now();
      let refused: Problem | undefined;
      if (answer.is === "problem" && answer.kind === "lost") {
        this.lease.lose(now);
      } else if (answer.is === "problem" && !repeats(answer)) {
        refused = answer;
      } else if (answer.is === "results") {
        answer.results.forEach((result, i) => {
          if (result.is === "done") {
            open[i]!.attachment.confirm(result.asked, now);
          } else if (result.kind === "lost") {
            open[i]!.attachment.refuse(now);
            this.forget(open[i]!);
          } else if (!repeats(result)) {
            refused = result;
          }
        });
      }
      open.forEach((lock) => lock.look());
      if (refused) {
        throw refusal(refused);
      }
      if (open.some((lock) => lock.attachment.send(now))) {
        await sleep(backoff.next(), signal);
      }
    }
    if (this.state() !== "held") {
      this.#told(); // which ends the acquires
    }
  }

  /** Releases a lock, until that is answered or the session has ended; the closing of that frees the lock too. */
  async release(lock: SessionLock, leaves: object): Promise<TenureError | undefined> {
    const release = lock.attachment.release(this.now());
    const body = { session: this.id, locks: [{ ...lock.attachment.call(), ...leaves }] };
    const backoff = new Backoff();
    const read = (reply: Reply): Answer => readResults(reply, [lock.name]);
    let last = "";
    while (release.call(this.now())) {
      const answer = await exchange(this.#calls, "/v1/sessions/release", body, this.limit, read);
      const result = answer.is === "results" ? answer.results[0]! : answer;
      if (result.is === "done") {
        release.applied();
      } else if (result.is === "problem" && result.kind === "lost") {
        release.refused();
      } else if (result.is === "problem" && !repeats(result)) {
        return refusal(result);
      } else {
        release.unknown();
        last = describe(result);
        await sleep(backoff.next());
      }
    }
    this.forget(lock);
    if (release.outcome === "unknown" && !this.#closing) {
      const what = `the release of ${lock.title} got no answer before its session ended`;
      return new UncertainError(`${what}; last answer: ${last}`);
    }
    return release.outcome === "lost" ? new LostError(`${lock.title} was lost before it was released`) : undefined;
  }

  /** Ends all work, then the heartbeats, then the session. */
  async close(): Promise<void> {
    const { leaseMs } = this.lease.grant;
    const ended = ["expired", "lost"].includes(this.lease.state(this.now())) ? this.error() : undefined;
    this.#closing = true;
    this.over.abort(this.error());
    this.#locks.forEach((lock) => lock.closes());
    const working = Promise.all(this.#works).then(() => false);
    const outlasted = await Promise.race([working, sleep(leaseMs, undefined, false).then(() => true)]);
    const release = this.lease.release(this.now());
    this.#heartbeats.abort();
    await this.#heartbeats.ended();
    if (outlasted) {
      throw ended ?? new UncertainError(`session ${this.id} expires: work under its locks did not end in time`);
    }
    const { clock } = this.#context;
    const body = { session: this.id };
    const last = await carryOut(release, clock, this.#calls, "/v1/sessions/close", body, this.limit);
    if (ended) {
      throw ended;
    }
    if (release.outcome === "unknown") {
      throw new UncertainError(
        `the closing of session ${this.id} got no answer: it is closed, or expires by itself; last answer: ${last}`,
      );
    }
    if (release.outcome === "lost") {
      throw new LostError(`session ${this.id} was lost before it was closed`);
    }
  }

  #told(answer?: Confirmed): void {
    const now = this.now();
    if (answer) {
      this.lease.requested(answer.requests ?? [], now);
    }
    if (["expired", "lost"].includes(this.lease.state(now))) {
      this.over.abort(this.error());
    }
    this.#locks.forEach((lock) => lock.look());
  }
}

/** A lock under a session. */
class SessionLock extends Lock {
  readonly attachment: Attachment;
  readonly grant: Grant;
  readonly #held: Held;
  readonly #later: boolean; // another attaches it
  readonly #ending = new AbortController();

  constructor(grant: Grant, { stopTimeoutMs = grant.leaseMs }: SessionAcquireOptions, held: Held, later = false) {
    super(grant);
    this.attachment = new Attachment(grant, held.lease, stopTimeoutMs);
    this.grant = grant;
    this.#held = held;
    this.#later = later;
    held.add(this);
  }

  /** What people call it. */
  get title(): string {
    return `"${this.name}" (token ${this.token})`;
  }

  get asked(): AskedError | undefined {
    return this.attachment.asked;
  }

  remaining(): number {
    return this.attachment.remaining(this.#held.now());
  }

  async start(sent: number): Promise<boolean> {
    this.attachment.granted(sent, this.#held.now());
    if (this.#later) {
      return true;
    }
    await this.#held.attach([this], this.#ending.signal);
    return this.attached();
  }

  /** Says whether it is attached, and held. */
  attached(): boolean {
    return this.attachment.attached && this.state() === "held";
  }

  abandon(): void {
    this.#ending.abort();
  }

  /** Tells the work to stop if it must, and releases the lock of work that has not stopped for long. */
  look(): void {
    this.tell();
    if (this.attachment.overdue(this.#held.now())) {
      this.release({ failed: "the work did not stop in time" }).catch(() => undefined);
    }
  }

  /** The session is closed. */
  closes(): void {
    this.attachment.release(this.#held.now());
    this.abandon();
    this.tellOver();
  }

  protected state(): State {
    return this.attachment.state(this.#held.now());
  }

  protected error(): TenureError {
    const state = this.state();
    const alive = this.#held.lease.state(this.#held.now()) === "held";
    const { message } = this.#held.error();
    switch (state) {
      case "lost":
        return new LostError(`${this.title} is lost: ${alive ? "it was not attached in time" : message}`);
      case "expired": {
        const late = this.asked ? "the work did not stop in time after a request" : "it was not attached in time";
        return new ExpiredError(`${this.title} has expired: ${alive ? late : message}`);
      }
      default:
        return errorOf(this.title, state);
    }
  }

  /** Ends the right, and releases the lock if the session is still there. */
  protected async end(options: ReleaseOptions): Promise<void> {
    const ended = ["expired", "lost"].includes(this.state()) ? this.error() : undefined;
    this.closes();
    const error = await this.#held.release(this, leaves(options));
    if (ended ?? error) {
      throw ended ?? error;
    }
  }
}

function refusal({ kind, status, detail }: Problem): ProblemError {
  return new ProblemError(kind, status, detail);
}
