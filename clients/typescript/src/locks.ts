// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** What a client and a session acquire: locks, slots of semaphores, the right to read or to write. @module */

import type { AcquireOptions, Want } from "./acquire.js";
import { runUnder, type Lock } from "./lock.js";

/** A slot of a semaphore that this process holds. */
export type Slot = Lock & { readonly slot: number; readonly slots: number };

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

  /**
   * Returns the semaphore with so many slots, from 1 to 1000: at most so many holders at a time. The number
   * counts when the semaphore is used for the first time; later the one in the store does.
   */
  semaphore(name: string, slots: number): Semaphore<O> {
    if (!Number.isInteger(slots) || slots < 1 || slots > 1000) {
      throw new TypeError(`a semaphore of ${slots} slots: want 1 to 1000`);
    }
    return new Semaphore(
      (options) => this.take({ name, kind: "slots", fields: { slots } }, options) as Promise<Slot>,
      (work) => this.during(work),
    );
  }

  /** Returns the lock for readers and writers: any number of readers, or one writer. */
  rwlock(name: string): RWLock<O> {
    return new RWLock(
      async (kind, options) => {
        if (options?.data) {
          throw new TypeError(`"${name}" keeps data of its own: acquire it without, and keep yours with the resource`);
        }
        return this.take({ name, kind, fields: { [kind]: true } }, options);
      },
      (work) => this.during(work),
    );
  }

  protected abstract take(want: Want, options?: O): Promise<Lock>;

  /** Returns the work of a run, as it is to be called. */
  protected during<L extends Lock, T>(work: (lock: L) => Promise<T> | T): (lock: L) => Promise<T> | T {
    return work;
  }
}

/** Returns the work of a run, as it is to be called. */
type During = <L extends Lock, T>(work: (lock: L) => Promise<T> | T) => (lock: L) => Promise<T> | T;

/**
 * At most so many holders at a time. Each has a slot, which is a lock: the next holder of the slot has a higher
 * token. Tokens of different slots have no order: fence each slot by its own name, `lock.name`.
 */
export class Semaphore<O extends AcquireOptions = AcquireOptions> {
  readonly #take: (options?: O) => Promise<Slot>;
  readonly #during: During;

  /** For `semaphore` of a client or of a session. */
  constructor(take: (options?: O) => Promise<Slot>, during: During) {
    this.#take = take;
    this.#during = during;
  }

  /** Acquires a slot and returns it held. The errors are those of `acquire`; HeldError names one of the holders. */
  acquire(options?: O): Promise<Slot> {
    return this.#take(options);
  }

  /** Acquires a slot, calls the work with it, releases it, and returns what the work did. */
  run<T>(work: (slot: Slot) => Promise<T> | T, options?: O): Promise<T> {
    return runUnder(this.acquire(options), this.#during(work));
  }
}

/**
 * Any number of readers at a time, or one writer. `lock.fenceToken` is what a resource compares, under the
 * name of this lock: it is even for a writer, and one higher for those who read after it. A reader cannot become
 * a writer, and who reads and asks to write waits for itself.
 *
 * `lock.lastWriter` says how the last writer ended: anything but `released` may have left half of the data.
 */
export class RWLock<O extends AcquireOptions = AcquireOptions> {
  readonly #take: (kind: "shared" | "exclusive", options?: O) => Promise<Lock>;
  readonly #during: During;

  /** For `rwlock` of a client or of a session. */
  constructor(take: (kind: "shared" | "exclusive", options?: O) => Promise<Lock>, during: During) {
    this.#take = take;
    this.#during = during;
  }

  /** Acquires the right to read. The errors are those of `acquire`; HeldError names a writer. */
  read(options?: O): Promise<Lock> {
    return this.#take("shared", options);
  }

  /**
   * Acquires the right to write, when all readers that were there are gone. The errors are those of `acquire`;
   * HeldError names a reader or a writer.
   */
  write(options?: O): Promise<Lock> {
    return this.#take("exclusive", options);
  }

  /** Acquires the right to read, calls the work with it, releases it, and returns what the work did. */
  runRead<T>(work: (lock: Lock) => Promise<T> | T, options?: O): Promise<T> {
    return runUnder(this.read(options), this.#during(work));
  }

  /** Acquires the right to write, calls the work with it, releases it, and returns what the work did. */
  runWrite<T>(work: (lock: Lock) => Promise<T> | T, options?: O): Promise<T> {
    return runUnder(this.write(options), this.#during(work));
  }
}
