// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** What a client and a session have in common: they acquire locks. @module */

import type { AcquireOptions, Want } from "./acquire.js";
import { runUnder, type Lock } from "./lock.js";

/** What a client and a session have in common. `O` is how they acquire. */
export abstract class Locks<O extends AcquireOptions> {
  /**
   * Acquires the lock and returns it held.
   *
   * Rejects with HeldError if another holder has it until the wait is over, UnavailableError if no
   * server answered, ProblemError if the call was refused (for example for lack of rights), TokenError if
   * a number cannot hold the token, and with the reason of the signal; under a session also with the error
   * that ends that. A server whose certificate is refused, or that speaks another protocol, answers no
   * later call either: if all are such, it rejects with UnavailableError at once. After 15 s without an
   * answer console.warn says so, once.
   *
   * The lock does not keep the process running: a process with nothing else to do ends, and the lock
   * expires. {@link run} keeps it running.
   */
  acquire(name: string, options?: O): Promise<Lock> {
    return this.take({ name }, options);
  }

  /**
   * Acquires the lock, calls the work with it, releases the lock, and returns what the work did. The
   * work must end when `lock.signal` is aborted. Rejects with LostError if the lock was lost before
   * the work was done.
   */
  run<T>(name: string, work: (lock: Lock) => Promise<T> | T, options?: O): Promise<T> {
    return runUnder(this.acquire(name, options), this.during(work));
  }

  protected abstract take(want: Want, options?: O): Promise<Lock>;

  /** Returns the work of a run, as it is to be called. */
  protected during<L extends Lock, T>(work: (lock: L) => Promise<T> | T): (lock: L) => Promise<T> | T {
    return work;
  }
}
