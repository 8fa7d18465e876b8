// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/**
 * The rules by which a client may believe that it holds a lock: a state machine without I/O.
 * Instants and lengths are in milliseconds of one clock that counts suspends.
 *
 * @module
 */

import { randomInt } from "node:crypto";

import type { AskedError } from "./errors.js";

/**
 * What a lease is at an instant: granted, and nothing counts yet, so that the holder must not act;
 * held; or one of three ends. Released also says that the release has begun.
 */
export type State = "unconfirmed" | "held" | "expired" | "lost" | "released";

/**
 * What came of a release. Lost: the lock was free, or another holder's, before. Unknown: it is
 * released, or expires by itself.
 */
export type Outcome = "released" | "lost" | "unknown";

/**
 * The answer to an acquire. usableMs is for how long the holder may act after it sent that; 0 if the
 * grant must not be counted. heartbeatMs is in which to send heartbeats.
 */
export interface Grant {
  readonly name: string;
  readonly token: number;
  readonly beat: string;
  readonly leaseMs: number;
  readonly usableMs: number;
  readonly heartbeatMs: number;
  readonly data?: Uint8Array;
  readonly slot?: number;
  readonly slots?: number;
  readonly fenceToken?: number;
  readonly lastWriter?: LastWriter;
  /** There were readers: the writer must not write before they are gone. */
  readonly drain?: boolean;
  /** What the release leaves as data if the writer has not written. */
  readonly unwritten?: Uint8Array;
}

/** Who wrote last, and how that ended. Anything but `released` may have left half of the data. */
export interface LastWriter {
  readonly owner: string;
  readonly token: number;
  readonly end: string;
}

/** The answer to the opening of a session. */
export interface Opened {
  readonly session: string;
  readonly beat: string;
  readonly leaseMs: number;
  readonly heartbeatMs: number;
}

/** One heartbeat. It is the same in each sending; firstSent is the instant before the first. */
export interface Heartbeat {
  readonly after: string;
  readonly next: string;
  readonly firstSent: number;
}

const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const LENGTH = 13;

/** The part of a lease in which a grant must come to be counted. */
const COUNTED_PART = 10;

/** The part of a lease for which the release of a lock that is not held is tried. */
const IDLE_PART = 5;

/** Says whether the grant that answered an acquire sent after that instant may be counted; it is there now. */
export function counts(grant: Pick<Grant, "leaseMs"> & Partial<Grant>, sent: number, now: number): boolean {
  const { usableMs = 0, leaseMs } = grant;
  const soon = now >= sent && now - sent < leaseMs / COUNTED_PART;
  return usableMs > 0 && soon;
}

/** Returns another beat of the same term. */
export function following(beat: string, random: () => string): string {
  for (;;) {
    const next = beat.slice(0, beat.indexOf("-") + 1) + random();
    if (next !== beat) {
      return next;
    }
  }
}

/** Returns what is new in each beat. */
export function randomPart(): string {
  return Array.from({ length: LENGTH }, () => LETTERS[randomInt(LETTERS.length)]).join("");
}

/**
 * A lock from its grant to its end, or a session from its opening to its end, by these rules:
 *
 * - A grant is no lease. The lock is held from the first confirmed heartbeat on; or at once if the
 *   grant may be counted and came in less than a tenth of the lease. It counts from the instant before
 *   its acquire was sent.
 * - The opening of a session counts for nothing. The first heartbeat counts only if it is confirmed within the
 *   usable time of the instant before the opening was sent: the session may be another one's by then.
 * - A confirmed heartbeat counts from the instant before its first sending.
 * - An unanswered heartbeat is sent again as it was.
 * - The deadline never moves back. Expired, lost and released are final.
 */
export class Lease {
  /** The request to the holder. */
  asked: AskedError | undefined;
  /** The holder that a refusal named. */
  refusedBy = "";
  #state: State = "unconfirmed";
  #confirmed: string;
  #open: Heartbeat | undefined; // sent, not answered
  #deadline = 0; // counts while held
  #opened = Infinity; // before the opening of a session was sent
  #nextAt = -Infinity; // when the next heartbeat is due
  #stopBy = Infinity; // no heartbeats from then on

  constructor(
    readonly grant: Pick<Grant, "beat" | "leaseMs" | "heartbeatMs"> & Partial<Grant>,
    readonly stopTimeout: number,
    readonly random: () => string = randomPart,
  ) {
    this.#confirmed = grant.beat;
  }

  /** The last confirmed beat. */
  get beat(): string {
    return this.#confirmed;
  }

  /** Records that this is a session, whose opening was sent after the instant. */
  opened(sent: number): void {
    this.#opened = sent;
  }

  /**
   * Records that the grant has answered the acquire that was sent after the instant `sent`, and no other
   * one; now is an instant after that answer.
   */
  granted(sent: number, now: number): void {
    const { usableMs = 0, heartbeatMs } = this.grant;
    if (this.#state === "unconfirmed" && counts(this.grant, sent, now)) {
      this.#deadline = sent + usableMs;
      this.#nextAt = sent + heartbeatMs;
      this.#state = "held";
      this.state(now);
    }
  }

  /** Returns what the lease is. Once it has said that it has ended it says so for ever. */
  state(now: number): State {
    if (this.#state === "held" && now >= this.#deadline) {
      this.#state = "expired";
    }
    // A confirmation then would be past its deadline.
    const first = Math.min(this.#opened, this.#open?.firstSent ?? Infinity);
    if (this.#state === "unconfirmed" && now >= first + this.grant.leaseMs) {
      this.#state = "expired";
    }
    return this.#state;
  }

  /** Returns how long the holder may still act if no more heartbeat is confirmed. */
  remaining(now: number): number {
    return this.state(now) === "held" ? this.#deadline - now : 0;
  }

  /** Returns the time until the next heartbeat is due; undefined after the last one. */
  due(now: number): number | undefined {
    if (!this.#lives(now) || now >= this.#stopBy) {
      return undefined; // if the work did not stop in time the lock expires
    }
    return this.#open ? 0 : Math.max(0, this.#nextAt - now);
  }

  /** Returns the heartbeat to send now: an unanswered one as it was, else a new one. */
  send(now: number): Heartbeat | undefined {
    if (this.due(now) === undefined) {
      return undefined;
    }
    if (!this.#open) {
      this.#open = { after: this.#confirmed, next: following(this.#confirmed, this.random), firstSent: now };
    }
    return this.#open;
  }

  /** Records that the server has confirmed the heartbeat; now is an instant after that answer. */
  confirm(heartbeat: Heartbeat, usable: number, period: number, asked: AskedError | undefined, now: number): void {
    if (heartbeat !== this.#open || !this.#lives(now)) {
      return;
    }
    if (this.#state === "unconfirmed" && now >= this.#opened + usable) {
      this.#state = "lost";
      return;
    }
    const deadline = heartbeat.firstSent + usable;
    this.#deadline = this.#state === "held" ? Math.max(this.#deadline, deadline) : deadline;
    this.#state = "held";
    this.#open = undefined;
    this.#confirmed = heartbeat.next;
    this.#nextAt = heartbeat.firstSent + period;
    if (asked && !this.asked) {
      this.asked = asked;
      this.#stopBy = now + this.stopTimeout;
    }
    this.state(now);
  }

  /** Records that the server has answered 410 to the heartbeat: the lock is lost. */
  refuse(heartbeat: Heartbeat, holder: string, now: number): void {
    if (heartbeat === this.#open && this.#lives(now)) {
      this.#state = "lost";
      this.refusedBy = holder;
    }
  }

  /** Records that the server has answered 410 to another call of the session: it is lost. */
  lose(now: number): void {
    if (this.#lives(now)) {
      this.#state = "lost";
    }
  }

  /** Begins the release: from now on the holder must not act, whatever the answer. */
  release(now: number): Release {
    const lease = this.grant.leaseMs;
    // An open heartbeat may be applied already, or between two calls.
    const beats = this.#open ? [this.#open.next, this.#confirmed, this.#open.next] : [this.#confirmed];
    const before = this.state(now);
    if (before === "lost") {
      return new Release([], () => true);
    }
    if (before !== "expired") {
      this.#state = "released";
    }
    // A lock that is not held yet is freed anyway: its user must not wait for that.
    const until = now + (before === "held" ? lease : lease / IDLE_PART);
    return new Release(beats, (now) => now >= until);
  }

  #lives(now: number): boolean {
    const state = this.state(now);
    return state === "unconfirmed" || state === "held";
  }
}

/**
 * The calls of a release: the newest beat sent, then the confirmed one. Without an answer the same call is
 * made again, for a lease at most; then the record expires by itself. For a lock under a session it is made
 * for as long as the session lasts.
 */
export class Release {
  outcome: Outcome | undefined;
  #doubt = false; // a call may have been applied

  constructor(
    readonly beats: string[],
    readonly over: (now: number) => boolean, // it has no use any more
  ) {
    if (beats.length === 0) {
      this.outcome = "lost";
    }
  }

  /** Returns the beat that the next call names, undefined after the last call. */
  call(now: number): string | undefined {
    if (!this.outcome && this.over(now)) {
      this.outcome = "unknown";
    }
    return this.outcome ? undefined : this.beats[0];
  }

  /** Records that the server has answered 200. */
  applied(): void {
    this.outcome = "released";
  }

  /** Records that the server has answered 410. */
  refused(): void {
    this.beats.shift();
    if (this.beats.length === 0) {
      // After an unknown answer it is our own release, or a later write.
      this.outcome = this.#doubt ? "released" : "lost";
    }
  }

  /** Records that no answer came, or not the service's. */
  unknown(): void {
    this.#doubt = true;
  }
}
