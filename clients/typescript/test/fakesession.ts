// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** A lock service in memory with many locks: under sessions, slots of semaphores, for readers and writers. @module */

import type { Reply } from "../src/answers.js";
import { answer, problem, Service, type Body } from "./fake.js";

/** A lock as the store has it. `under` is the session that keeps it alive. */
interface Kept {
  token: number;
  holder?: string | undefined;
  beat: string;
  under?: string | undefined;
  endedWith?: string;
  data?: string | undefined;
  failed?: string | undefined;
}

/** Sessions and locks, as tenured has them. Their leases end only when a test says so. */
export class ManyLocks extends Service {
  readonly locks = new Map<string, Kept>();
  session = ""; // that is open
  sessionBeat = "";
  requests: Body[] = [];
  lastWriter: Body | undefined;

  held(name: string): boolean {
    return this.locks.get(name)?.holder !== undefined;
  }

  override carryOut(path: string, body: Body): Reply {
    switch (path) {
      case "/v1/sessions/open":
        this.session = `S${this.bodies(path).length}`;
        this.sessionBeat = `s${this.session}-0000000000000`;
        return answer({
          session: this.session,
          beat: this.sessionBeat,
          lease_ms: this.leaseMs,
          heartbeat_ms: this.heartbeatMs,
        });
      case "/v1/sessions/heartbeat":
        return this.#renew(body);
      case "/v1/sessions/close":
        return this.#close(body);
      case "/v1/sessions/attach":
        return body["session"] === this.session
          ? answer({ results: body["locks"].map((one: Body) => this.#attach(one)) })
          : problem("lost", 410);
      case "/v1/sessions/release":
        return answer({ results: body["locks"].map((one: Body) => this.#detach(one, body["session"])) });
      case "/v1/drain":
        return this.#drain(body);
      case "/v1/heartbeat":
        return this.#beat(body);
      case "/v1/acquire":
        return this.#acquire(body);
      default:
        return this.#free(body);
    }
  }

  #renew({ session, after, next, answered = [] }: Body): Reply {
    if (session !== this.session || ![after, next].includes(this.sessionBeat)) {
      return problem("lost", 410);
    }
    this.sessionBeat = next;
    this.requests = this.requests.filter(({ id }) => !answered.includes(id));
    return answer({ usable_ms: this.usableMs, heartbeat_ms: this.heartbeatMs, requests: this.requests });
  }

  #close({ session, after }: Body): Reply {
    if (session !== this.session || after !== this.sessionBeat) {
      return problem("lost", 410);
    }
    this.locks.forEach((lock) => {
      lock.holder = lock.under === session ? undefined : lock.holder;
    });
    return answer({});
  }

  #attach({ name, token, after, next }: Body): Body {
    const lock = this.locks.get(name);
    if (!lock || lock.token !== token || lock.holder === undefined || ![after, next].includes(lock.beat)) {
      return { name, asked: null, problem: refused("lost", 410) };
    }
    lock.beat = next;
    lock.under = this.session;
    return { name, asked: null };
  }

  #detach({ name, token, after, next, data, failed }: Body, session: string): Body {
    const lock = this.locks.get(name);
    const again = lock?.endedWith === next;
    const attached = lock?.under === session && lock.beat === next;
    const ours = lock?.holder !== undefined && lock.token === token && (lock.under ? attached : lock.beat === after);
    if (!lock || (!ours && !again)) {
      return { name, problem: refused("lost", 410) };
    }
    Object.assign(lock, { holder: undefined, endedWith: next, data: data ?? lock.data, failed });
    return { name };
  }

  #beat({ name, token, after, next }: Body): Reply {
    const lock = this.locks.get(name);
    const ours = lock?.holder !== undefined && lock.token === token && [after, next].includes(lock.beat);
    if (!ours || lock.under) {
      return problem("lost", 410);
    }
    lock.beat = next;
    return answer({ usable_ms: this.usableMs, heartbeat_ms: this.heartbeatMs, asked: this.asked });
  }

  #free({ name, token, after, data, failed }: Body): Reply {
    const lock = this.locks.get(name);
    if (!lock || lock.under || lock.token !== token || lock.beat !== after) {
      return problem("lost", 410);
    }
    Object.assign(lock, { holder: undefined, data: data ?? lock.data, failed });
    return answer({});
  }

  #readers(name: string): string[] {
    return [...this.locks.keys()].filter((key) => key.startsWith(`${name}:read/`) && this.held(key));
  }

  #acquire(body: Body): Reply {
    const { name, slots, shared, exclusive, wait_ms: wait } = body;
    const readers = this.#readers(name);
    const numbered = (kind: string, n: number): string =>
      Array.from({ length: n }, (_, i) => `${name}:${kind}/${i}`).find((key) => !this.held(key)) ?? `${name}:${kind}/0`;
    const given = slots ? numbered("slot", slots) : shared ? numbered("read", 8) : exclusive ? `${name}:gate` : name;
    const way = exclusive && !wait ? readers[0] : shared && this.held(`${name}:gate`) ? `${name}:gate` : undefined;
    const other = way ?? (this.held(given) ? given : undefined);
    if (other !== undefined) {
      const { holder, token } = this.locks.get(other)!;
      return problem("held", 409, { holder, token, free_in_ms: 500, reserved: false });
    }
    const before = this.locks.get(given);
    const token = (before?.token ?? 0) + 1;
    const beat = `t${token}-0000000000000`;
    this.locks.set(given, { token, holder: body["owner"], beat, data: body["data"] ?? before?.data });
    const epoch = this.locks.get(`${name}:gate`)?.token ?? 0;
    return answer({
      name: given,
      token,
      beat,
      lease_ms: this.leaseMs,
      heartbeat_ms: this.heartbeatMs,
      free_after_ms: Math.floor(this.leaseMs / 3),
      ...(this.counts && { usable_ms: this.usableMs }),
      ...(slots && { slot: Number(given.split("/").at(-1)), slots }),
      ...(shared && { fence_token: 2 * epoch + 1 }),
      ...(exclusive && { fence_token: 2 * epoch, unwritten: "dW4=", ...(readers.length > 0 && { drain: true }) }),
      ...((shared || exclusive) && this.lastWriter && { last_writer: this.lastWriter }),
    });
  }

  #drain({ name, token }: Body): Reply {
    const gate = this.locks.get(name);
    if (gate?.holder === undefined || gate.token !== token) {
      return problem("lost", 410);
    }
    const [reader] = this.#readers(name.slice(0, -":gate".length));
    if (reader === undefined) {
      return answer({});
    }
    const { holder, token: other } = this.locks.get(reader)!;
    return problem("held", 409, { holder, token: other, free_in_ms: 500 });
  }
}

/** Returns a problem as the result for one lock. */
export function refused(kind: string, status: number): Body {
  return JSON.parse(problem(kind, status).body) as Body;
}
