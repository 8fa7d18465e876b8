// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** The errors in which a lock can end, and with which a call can fail. @module */

/** The base of all errors of this package. */
export class TenureError extends Error {
  override get name(): string {
    return this.constructor.name;
  }
}

/** Another holder has the lock, and the wait is over. Not an accident: try again later. */
export class HeldError extends TenureError {
  constructor(
    readonly lock: string,
    readonly holder: string,
    /** 0 if it is above 2^53 - 1, and so would be rounded. */
    readonly token: number,
    /** Milliseconds until the lock can be free at the earliest if its holder shows no life. */
    readonly freeInMs: number,
    /** The lock is kept for the holder, to whom it was handed over. */
    readonly reserved: boolean,
    readonly label: string,
  ) {
    super(`"${lock}" is held by ${JSON.stringify(holder)} (token ${token})`);
  }
}

/** The lock is not held any more: stop at once. It never comes back; acquire it again. */
export class LostError extends TenureError {}

/** The deadline passed before a heartbeat was confirmed. */
export class ExpiredError extends LostError {}

/** The lock is granted, and no heartbeat of it is confirmed yet: do not act on it. */
export class NotConfirmedError extends TenureError {}

/** The lock was released, or its release has begun. */
export class ReleasedError extends TenureError {}

/** The holder was asked to stop. The lock is held until the work has returned. */
export class AskedError extends TenureError {
  constructor(
    /** `step-down` or `hand-over`. */
    readonly kind: string,
    readonly by: string,
    readonly why: string,
    readonly to = "",
    readonly toLabel = "",
  ) {
    const next = to || toLabel;
    super(
      `asked to ${kind.replace("-", " ")}${next && ` to ${JSON.stringify(next)}`} by ${JSON.stringify(by)}${why && `: ${why}`}`,
    );
  }
}

/** The server refused the call. `kind` is the last part of the problem's type. */
export class ProblemError extends TenureError {
  constructor(
    readonly kind: string,
    readonly status: number,
    readonly detail: string,
  ) {
    super(`${kind} (${status}): ${detail}`);
  }
}

/**
 * The store of the server keeps no sessions: it may lose what it has confirmed, or is shared with another
 * lock client. Acquire single locks, which have heartbeats of their own.
 */
export class NoSessionsError extends ProblemError {}

/**
 * The lock was granted under a token above 2^53 - 1, which a number cannot hold: the resource could
 * not tell it from another one. The service frees the lock by itself. Use a client of another language.
 */
export class TokenError extends TenureError {}

/** No server gave an answer to an acquire before the wait was over. Nothing is held. */
export class UnavailableError extends TenureError {}

/** No answer to the release came: the lock is released, or expires by itself. */
export class UncertainError extends TenureError {}
