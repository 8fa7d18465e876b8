// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/**
 * The rules by which a client may believe in a session and in the locks under it, without I/O.
 * Instants and lengths are in milliseconds of one clock that counts suspends.
 *
 * @module
 */

import type { SessionRequest } from "./answers.js";
import type { AskedError } from "./errors.js";
import {
  counts,
  following,
  Lease,
  randomPart,
  Release,
  type Grant,
  type Heartbeat,
  type Opened,
  type State,
} from "./lease.js";

const MOST_ANSWERED = 64; // requests of one heartbeat

/**
 * A session from its opening to its end: a lease, and requests to the holders of its locks. A request is
 * answered once its lock is released, or refused; or at once if no such lock is there.
 */
export class SessionLease extends Lease {
  readonly #locks = new Map<string, Attachment>();
  #requests: readonly SessionRequest[] = []; // of the last confirmed heartbeat
  #answered: readonly [Heartbeat, readonly string[]] | undefined; // as it was sent

  /** The opening was sent after the instant `sent`. */
  constructor(opened: Opened, sent: number, random?: () => string) {
    super(opened, opened.leaseMs, random);
    this.opened(sent);
  }

  /** Records that a lock was granted, which is to be attached. */
  add(lock: Attachment): void {
    this.#locks.set(keyOf(lock.grant), lock);
  }

  /** Records what a confirmed heartbeat has told. */
  requested(requests: readonly SessionRequest[], now: number): void {
    this.#requests = requests;
    requests.forEach((request) => this.#locks.get(keyOf(request))?.ask(request.asked, now));
  }

  /** Returns the ids of the requests that the heartbeat names as answered, the same whenever it is sent. */
  answered(heartbeat: Heartbeat): readonly string[] {
    if (this.#answered?.[0] !== heartbeat) {
      this.#locks.forEach((lock, key) => lock.gone && this.#locks.delete(key));
      const done = this.#requests.filter((request) => !this.#locks.has(keyOf(request)));
      this.#answered = [heartbeat, done.slice(0, MOST_ANSWERED).map(({ id }) => id)];
    }
    return this.#answered[1];
  }
}

/**
 * A lock under a session, from its grant to its end, by these rules:
 *
 * - Once the attachment is confirmed the lock is held as long as the session is, and ends with that. It has no
 *   heartbeats of its own.
 * - Before, a grant that may be counted is held until the earlier one of both deadlines; others are not.
 * - The attachment, and the release, name the same two beats however often they are sent.
 * - Each end is final.
 */
export class Attachment {
  /** The request to the holder. */
  asked: AskedError | undefined;
  readonly #next: string;
  #state: State = "unconfirmed";
  #attached = false;
  #deadline = Infinity; // of the grant, before it is attached
  #sent: Heartbeat | undefined; // the attachment
  #stopBy = Infinity; // the work must have ended
  #release: Release | undefined;

  constructor(
    readonly grant: Pick<Grant, "name" | "token" | "beat" | "leaseMs"> & Partial<Grant>,
    readonly session: Lease,
    readonly stopTimeout: number,
    random: () => string = randomPart,
  ) {
    this.#next = following(grant.beat, random);
  }

  /** Says that it is released, or was refused: the client does not hold it, and never will. */
  get gone(): boolean {
    return this.#state === "lost" || this.#release?.outcome === "released" || this.#release?.outcome === "lost";
  }

  /** Says that the attachment was confirmed, before any end. */
  get attached(): boolean {
    return this.#attached;
  }

  /** Records that the grant has answered the acquire that was sent after the instant, and is there now. */
  granted(sent: number, now: number): void {
    if (this.state(now) === "unconfirmed" && counts(this.grant, sent, now)) {
      this.#deadline = sent + (this.grant.usableMs ?? 0);
      this.#state = "held";
    }
  }

  /** Returns what the lock is. Once it has said that it has ended it says so for ever. */
  state(now: number): State {
    if (this.#state === "unconfirmed" || this.#state === "held") {
      const session = this.session.state(now);
      const unanswered = !this.#attached && this.#sent && now >= this.#sent.firstSent + this.grant.leaseMs;
      if (session !== "held") {
        this.#state = session;
      } else if (unanswered || now >= this.#stopBy || (!this.#attached && now >= this.#deadline)) {
        this.#state = "expired";
      }
    }
    return this.#state;
  }

  /** Returns how long the holder may still act if nothing more is confirmed. */
  remaining(now: number): number {
    if (this.state(now) !== "held") {
      return 0;
    }
    return Math.min(this.session.remaining(now), this.#stopBy - now, this.#attached ? Infinity : this.#deadline - now);
  }

  /** Returns the attachment to send now; undefined if it is confirmed, or the lock has ended. */
  send(now: number): Heartbeat | undefined {
    const state = this.state(now);
    if (this.#attached || (state !== "unconfirmed" && state !== "held")) {
      return undefined;
    }
    this.#sent ??= { after: this.grant.beat, next: this.#next, firstSent: now };
    return this.#sent;
  }

  /** Returns what an attachment and a release say of the lock. */
  call(): { name: string; token: number; after: string; next: string } {
    const { name, token, beat } = this.grant;
    return { name, token, after: beat, next: this.#next };
  }

  /** Records that the attachment is confirmed; now is an instant after that answer. */
  confirm(asked: AskedError | undefined, now: number): void {
    const state = this.state(now);
    if (state === "unconfirmed" || state === "held") {
      this.#attached = true;
      this.#state = "held";
      this.ask(asked, now);
    }
  }

  /** Records that the server has answered 410 for the lock: it is not under the session. */
  refuse(now: number): void {
    const state = this.state(now);
    if (!this.#attached && (state === "unconfirmed" || state === "held")) {
      this.#state = "lost";
    }
  }

  /** Records what the holder of this lock is asked. */
  ask(asked: AskedError | undefined, now: number): void {
    if (asked && !this.asked) {
      this.asked = asked;
      this.#stopBy = now + this.stopTimeout;
    }
  }

  /** Says that the work has outlasted its time to stop by a lease: the session would keep the lock for ever. */
  overdue(now: number): boolean {
    return now >= this.#stopBy + this.grant.leaseMs;
  }

  /** Begins the release: from now on the holder must not act, whatever the answer. */
  release(now: number): Release {
    const state = this.state(now);
    if (state === "unconfirmed" || state === "held") {
      this.#state = "released";
    }
    // Without a session there is nothing to release, and the closing of that frees the lock.
    this.#release ??= new Release(state === "lost" ? [] : [this.#next], (now) => this.session.state(now) !== "held");
    return this.#release;
  }
}

/** Returns what tells one term of one lock from all others. */
function keyOf({ name, token }: { readonly name: string; readonly token: number }): string {
  return `${token} ${name}`;
}
