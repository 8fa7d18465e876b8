// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** The client: it acquires locks, and opens sessions. @module */

import {
  Acquiring,
  checkName,
  checkOptions,
  holderOf,
  type AcquireOptions,
  type Context,
  type Want,
} from "./acquire.js";
import { greaterClock, type Clock } from "./clock.js";
import { runUnder, SingleLock, type Lock } from "./lock.js";
import { Locks } from "./locks.js";
import { openSession, type Session, type SessionOptions } from "./session.js";
import { addresses, Caller, Credentials, defaultTransport, type TlsOptions, type Transport } from "./transport.js";

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

/**
 * Acquires locks through the servers of a lock service.
 *
 * An address is `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`. Any server serves; a call
 * that has no answer goes to the next one.
 */
export class Client extends Locks<AcquireOptions> {
  readonly #context: Context;

  constructor(servers: string | readonly string[], options: ClientOptions = {}) {
    super();
    const listed = addresses(servers);
    const credentials = new Credentials(options.token, options.tokenFile);
    const transport = options.transport ?? defaultTransport(options.tls);
    this.#context = {
      caller: () => new Caller(listed, credentials, transport),
      clock: options.clock ?? greaterClock(),
    };
  }

  /**
   * Opens a session: one heartbeat that keeps many locks alive. Close it when all work has ended, or let
   * `await using` do so.
   *
   * Rejects with NoSessionsError where the store of the server keeps no sessions: acquire single locks there.
   * The other errors are those of {@link acquire}. The session does not keep the process running.
   */
  session(options: SessionOptions = {}): Promise<Session> {
    return openSession(options, this.#context);
  }

  /** Opens a session, calls the work with it, closes the session, and returns what the work did. */
  async withSession<T>(work: (session: Session) => Promise<T> | T, options: SessionOptions = {}): Promise<T> {
    return runUnder(this.session(options), work);
  }

  protected async take(want: Want, options: AcquireOptions = {}): Promise<Lock> {
    checkName(want.name);
    checkOptions(options);
    const { caller, clock } = this.#context;
    const lockOf: Acquiring["lockOf"] = (grant) =>
      new SingleLock(grant, options.stopTimeoutMs ?? grant.leaseMs, clock, caller(), caller());
    const ends = options.signal ? [options.signal] : [];
    return new Acquiring(want, options, holderOf(options), ends, this.#context, lockOf).run();
  }
}
