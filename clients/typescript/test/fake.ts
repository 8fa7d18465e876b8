// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** A small lock service in memory, with faults, and a clock that tests move. @module */

import type { Reply } from "../src/answers.js";
import { Client } from "../src/client.js";
import type { Call, Transport } from "../src/transport.js";

export type Body = Record<string, any>;

/** Answers one call in place of the service, or throws. */
export type Fault = (service: Service, path: string, body: Body, call: Call) => Reply | Promise<Reply>;

/** Carries the call out, and loses the answer. */
export const lost: Fault = (service, path, body) => {
  service.carryOut(path, body);
  throw new Error("the answer was lost");
};

/** Loses the call. */
export const dropped: Fault = () => {
  throw new Error("the call was lost");
};

/** Carries the call out; a proxy answers 502 in HTML. */
export const badGateway: Fault = (service, path, body) => {
  service.carryOut(path, body);
  return { status: 502, contentType: "text/html", body: "<h1>502 Bad Gateway</h1>" };
};

/** Carries the call out twice, and gives the second answer. */
export const doubled: Fault = (service, path, body) => {
  service.carryOut(path, body);
  return service.carryOut(path, body);
};

/** No answer, as long as the caller waits. */
export const hang: Fault = (_service, _path, _body, call) =>
  new Promise((_resolve, reject) => {
    call.signal.addEventListener("abort", () => reject(call.signal.reason));
  });

export function problem(kind: string, status: number, more: Body = {}): Reply {
  const body = { type: `urn:tenure:problem:${kind}`, title: kind, status, detail: kind, ...more };
  return { status, contentType: "application/problem+json", body: JSON.stringify(body) };
}

export function answer(body: Body): Reply {
  return { status: 200, contentType: "application/json", body: JSON.stringify(body) };
}

/** A clock that tests move, in milliseconds. */
export class ManualClock {
  now = 0;
  readonly read = (): number => this.now;
}

/** One lock, as tenured has it. Its leases end only when a test says so. */
export class Service {
  readonly calls: { path: string; body: Body; server: string }[] = [];
  readonly faults: Record<string, Fault[]> = {}; // by path, for the next calls of it
  readonly always: Record<string, Fault> = {}; // by path
  readonly streams: (Body[] | Error)[] = []; // what the next ones say before their answer
  readonly streamed: Body[] = []; // the bodies of calls for a stream
  leaseMs = 15000;
  heartbeatMs = 3000;
  usableMs = 12000;
  counts = false; // its grants may be counted
  token = 0;
  holder: string | undefined;
  beat = "";
  data: string | undefined;
  failed: string | undefined;
  asked: Body | null = null;
  releasedWith = "";

  client(clock?: ManualClock, servers = 1): Client {
    const addresses = Array.from({ length: servers }, (_, i) => `http://127.0.0.1:${i + 1}`);
    return new Client(addresses, { token: "t", transport: this.transport, ...(clock && { clock: clock.read }) });
  }

  readonly transport: Transport = async (call) => {
    const { path, server } = call;
    const body = JSON.parse(call.body) as Body;
    if (call.onText) {
      this.streamed.push(body);
      const says = this.streams.shift() ?? [];
      if (says instanceof Error) {
        throw says;
      }
      says.forEach((said) => call.onText?.(`event: waiting\ndata: ${JSON.stringify(said)}\n\n`));
    }
    this.calls.push({ path, body, server });
    const fault = this.faults[path]?.shift() ?? this.always[path];
    return fault ? fault(this, path, body, call) : this.carryOut(path, body);
  };

  carryOut(path: string, body: Body): Reply {
    switch (path) {
      case "/v1/acquire":
        return this.#acquire(body);
      case "/v1/heartbeat":
        return this.#heartbeat(body);
      default:
        return this.#release(body);
    }
  }

  bodies(path: string): Body[] {
    return this.calls.filter((call) => call.path === path).map((call) => call.body);
  }

  /** Gives the lock to another holder. */
  takeAway(): void {
    this.token++;
    this.holder = "another";
    this.beat = "ooooooooooooo-0000000000000";
  }

  #acquire(body: Body): Reply {
    if (this.holder !== undefined) {
      return problem("held", 409, { holder: this.holder, token: this.token, free_in_ms: 500, reserved: false });
    }
    this.token++;
    this.holder = body["owner"];
    this.beat = `t${String(this.token).padStart(12, "0")}-0000000000000`;
    this.data = body["data"] ?? this.data;
    return answer({
      name: body["name"],
      token: this.token,
      beat: this.beat,
      lease_ms: this.leaseMs,
      heartbeat_ms: this.heartbeatMs,
      free_after_ms: Math.floor(this.leaseMs / 3),
      ...(this.counts && { usable_ms: this.usableMs }),
      data: this.data,
    });
  }

  #heartbeat(body: Body): Reply {
    const ours = this.beat === body["after"] || this.beat === body["next"];
    if (this.holder === undefined || body["token"] !== this.token || !ours) {
      return problem("lost", 410, { holder: this.holder, token: this.token });
    }
    this.beat = body["next"];
    return answer({ usable_ms: this.usableMs, heartbeat_ms: this.heartbeatMs, asked: this.asked });
  }

  #release(body: Body): Reply {
    const again = this.holder === undefined && body["after"] === this.releasedWith;
    const held = this.holder !== undefined && body["token"] === this.token && this.beat === body["after"];
    if (!again && !held) {
      return problem("lost", 410);
    }
    this.holder = undefined;
    this.releasedWith = body["after"];
    this.data = body["data"] ?? this.data;
    this.failed = body["failed"];
    return answer({});
  }
}
