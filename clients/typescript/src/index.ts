// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/**
 * Locks that one process at a time holds, through Tenure's lock service.
 *
 * A lock is held from its first confirmed heartbeat until its deadline, by a clock that counts
 * suspends. `lock.check()` is exact; `lock.signal` is aborted when the work must stop.
 *
 * A process can be paused between its check and its effect. What must never be overwritten compares
 * `lock.token`, which only rises, with the highest that it has seen.
 *
 * @module
 */

export { Client, type ClientOptions } from "./client.js";
export type { AcquireOptions } from "./acquire.js";
export { greaterClock, type Clock, type Reading } from "./clock.js";
export * from "./errors.js";
export type { LastWriter } from "./lease.js";
export type { Lock, ReleaseOptions } from "./lock.js";
export type { RWLock, Semaphore, Slot } from "./locks.js";
export type { Session, SessionAcquireOptions, SessionOptions } from "./session.js";
export type { Call, TlsOptions, Transport } from "./transport.js";
export type { Reply } from "./answers.js";
