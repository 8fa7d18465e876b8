// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** A lock against a service in memory: answers lost, late and doubled, suspends, releases. @module */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import test, { afterEach, beforeEach, describe } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import {
  AskedError,
  Client,
  ExpiredError,
  HeldError,
  LostError,
  ProblemError,
  ReleasedError,
  TokenError,
  UnavailableError,
  UncertainError,
  type AcquireOptions,
  type Lock,
  type Transport,
} from "../src/index.js";
import type { Reply } from "../src/answers.js";
import { step } from "../src/heartbeats.js";
import { badGateway, doubled, dropped, hang, lost, ManualClock, problem, Service, type Fault } from "./fake.js";

const SOON = 30_000;
const HOUR = 3600 * 1000;
const ASKED = { kind: "step-down", by: "ops", reason: "deploy" };

step.ms = 10; // how soon a clock that was moved is read

let service: Service;
let clock: ManualClock;
let locks: Lock[];

beforeEach(() => {
  service = new Service();
  clock = new ManualClock();
  locks = [];
});

afterEach(async () => {
  for (const path of Object.keys(service.always)) {
    delete service.always[path];
  }
  await Promise.all(locks.map((lock) => lock.release().catch(() => undefined)));
});

async function acquire(options: AcquireOptions = {}): Promise<Lock> {
  const lock = await service.client(clock).acquire("n", options);
  locks.push(lock);
  return lock;
}

async function until(condition: () => boolean): Promise<void> {
  for (const limit = performance.now() + SOON; !condition(); ) {
    assert.ok(performance.now() < limit, "it never came");
    await pause(5);
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  return until(() => signal.aborted);
}

/** Carries the call out, which takes so long. */
function slow(ms: number, then: Fault = (s, path, body) => s.carryOut(path, body)): Fault {
  return (s, path, body, call) => {
    clock.now += ms;
    return then(s, path, body, call);
  };
}

describe("holding", () => {
  test("held from the first confirmed heartbeat", async () => {
    service.faults["/v1/acquire"] = [slow(4000)];
    service.faults["/v1/heartbeat"] = [slow(1000)];
    const lock = await acquire();
    // Not from the grant, which is 5 s old, and not from the answer: from before the heartbeat.
    assert.equal(lock.remaining(), 11000);
    lock.check();
  });

  test("a pair is two calls", async () => {
    service.counts = true;
    service.faults["/v1/acquire"] = [slow(1499)];
    const lock = await acquire();
    lock.check();
    assert.equal(lock.remaining(), 10501);
    await lock.release();
    assert.deepEqual(service.calls.map((call) => call.path), ["/v1/acquire", "/v1/release"]);
  });

  test("a counted grant is held on", async () => {
    service.counts = true;
    const lock = await acquire();
    clock.now += 3000;
    await until(() => lock.remaining() === 12000);
    assert.deepEqual(service.bodies("/v1/heartbeat").map((body) => body["after"]), ["t000000000001-0000000000000"]);
    service.always["/v1/heartbeat"] = dropped;
    clock.now += 12000;
    assert.throws(() => lock.check(), ExpiredError);
  });

  test("a grant that comes late needs a heartbeat", async () => {
    service.counts = true;
    service.faults["/v1/acquire"] = [slow(1500)];
    const lock = await acquire();
    assert.equal(lock.remaining(), 12000);
    assert.equal(service.bodies("/v1/heartbeat").length, 1);
  });

  test("an acquire that is sent again counts from its own sending", async () => {
    service.counts = true;
    // The first had no effect, and the answer to the second comes long after that was sent.
    service.faults["/v1/acquire"] = [slow(9000, dropped), slow(1000)];
    const lock = await acquire();
    assert.equal(lock.remaining(), 11000);
    assert.deepEqual(service.bodies("/v1/heartbeat"), []);
  });

  test("repeated heartbeats count from the first sending", async () => {
    service.faults["/v1/heartbeat"] = [slow(2000, lost), dropped, badGateway];
    const lock = await acquire();
    assert.equal(lock.remaining(), 10000);
    const sent = service.bodies("/v1/heartbeat");
    assert.equal(sent.length, 4);
    sent.forEach((body) => assert.deepEqual(body, sent[0]));
  });

  test("a doubled heartbeat is confirmed", async () => {
    service.faults["/v1/heartbeat"] = [doubled];
    (await acquire()).check();
  });

  test("heartbeats go on", async () => {
    service.heartbeatMs = 10;
    const lock = await service.client().acquire("n");
    await until(() => service.bodies("/v1/heartbeat").length > 5);
    await lock.release();
    const sent = service.bodies("/v1/heartbeat");
    sent.slice(1).forEach((body, i) => assert.equal(body["after"], sent[i]!["next"]));
  });

  test("lost", async () => {
    const lock = await acquire();
    service.takeAway();
    clock.now += 3000;
    await aborted(lock.over);
    assert.throws(() => lock.check(), (error: Error) => error instanceof LostError && /another/.test(error.message));
    assert.ok(lock.signal.aborted && lock.signal.reason instanceof LostError);
  });

  test("the deadline needs no network", async () => {
    const lock = await acquire();
    service.always["/v1/heartbeat"] = hang;
    clock.now += 3000;
    await until(() => service.bodies("/v1/heartbeat").length > 1);
    clock.now += 8999;
    lock.check();
    assert.ok(!lock.signal.aborted);
    clock.now += 1;
    assert.throws(() => lock.check(), ExpiredError);
    await aborted(lock.over);
    assert.ok(lock.signal.reason instanceof ExpiredError);
  });

  test("a suspend is seen", async () => {
    const lock = await acquire();
    clock.now += HOUR;
    assert.throws(() => lock.check(), ExpiredError);
    assert.equal(lock.remaining(), 0);
    await aborted(lock.over);
  });

  test("expired is final", async () => {
    const lock = await acquire();
    service.faults["/v1/heartbeat"] = [slow(9000)];
    clock.now += 3000;
    await aborted(lock.over);
    assert.throws(() => lock.check(), ExpiredError);
  });

  test("refusals that are not 410 are asked again", async () => {
    const lock = await acquire();
    const refusals = { unauthenticated: 401, forbidden: 403, limited: 429, unknown: 503 };
    service.faults["/v1/heartbeat"] = Object.entries(refusals).map(([kind, status]) => () => problem(kind, status));
    clock.now += 3000;
    await until(() => service.bodies("/v1/heartbeat").length === 6);
    lock.check();
    const sent = service.bodies("/v1/heartbeat").slice(1);
    sent.forEach((body) => assert.deepEqual(body, sent[0]));
  });

  test("asked", async () => {
    const lock = await acquire({ stopTimeoutMs: 6000 });
    service.asked = ASKED;
    clock.now += 3000;
    await aborted(lock.signal);
    assert.ok(lock.signal.reason instanceof AskedError);
    assert.ok(!lock.over.aborted);
    lock.check();
    clock.now += 3000; // it is held on while the work stops
    await until(() => lock.remaining() === 12_000); // that heartbeat is confirmed
    clock.now += 3000; // and no longer
    clock.now += 8999;
    lock.check();
    clock.now += 1;
    await aborted(lock.over);
    assert.throws(() => lock.check(), ExpiredError);
    assert.equal(service.bodies("/v1/heartbeat").length, 3);
  });
});

describe("releasing", () => {
  test("release", async () => {
    const lock = await acquire();
    await assert.rejects(lock.release({ data: new Uint8Array(256 * 1024 + 1) }), /data has 262145 bytes/);
    lock.check();
    await lock.release({ data: new TextEncoder().encode("next: 17") });
    assert.equal(service.holder, undefined);
    assert.throws(() => lock.check(), ReleasedError);
    assert.equal(new TextDecoder().decode((await acquire()).data), "next: 17");
  });

  test("a 5xx is perhaps released", async () => {
    const lock = await acquire();
    const checked: unknown[] = [];
    const watched: Fault = (...call) => {
      try {
        lock.check();
        checked.push("passed");
      } catch (error) {
        checked.push((error as Error).name);
      }
      return badGateway(...call);
    };
    service.faults["/v1/release"] = [watched, watched];
    await lock.release();
    // Between the answers nobody may act, although the service's answer was an error.
    assert.deepEqual(checked, ["ReleasedError", "ReleasedError"]);
    const sent = service.bodies("/v1/release");
    assert.equal(sent.length, 3);
    sent.forEach((body) => assert.deepEqual(body, sent[0]));
  });

  test("no answer for a lease", async () => {
    const lock = await acquire();
    service.always["/v1/release"] = slow(8000, dropped);
    await assert.rejects(lock.release(), UncertainError);
    assert.equal(service.bodies("/v1/release").length, 2);
    await assert.rejects(lock.release(), UncertainError); // as the first one
  });

  test("with a heartbeat under way", async () => {
    const lock = await acquire();
    service.faults["/v1/heartbeat"] = [lost];
    service.always["/v1/heartbeat"] = hang;
    clock.now += 3000;
    await until(() => service.bodies("/v1/heartbeat").length === 3);
    await lock.release();
    const newest = service.bodies("/v1/heartbeat").at(-1)!;
    assert.deepEqual(service.bodies("/v1/release").map((body) => body["after"]), [newest["next"]]);
    assert.equal(service.holder, undefined);
  });

  test("with a heartbeat that never came", async () => {
    const lock = await acquire();
    service.always["/v1/heartbeat"] = hang;
    clock.now += 3000;
    await until(() => service.bodies("/v1/heartbeat").length === 2);
    await lock.release();
    const newest = service.bodies("/v1/heartbeat").at(-1)!;
    const afters = service.bodies("/v1/release").map((body) => body["after"]);
    assert.deepEqual(afters, [newest["next"], newest["after"]]);
    assert.equal(service.holder, undefined);
  });

  test("run rejects if the lock was lost", async () => {
    await assert.rejects(service.client(clock).run("n", () => service.takeAway()), LostError);
  });

  test("run tells that the work failed", async () => {
    const client = service.client(clock);
    await assert.rejects(client.run("n", () => Promise.reject(new RangeError("too far"))), RangeError);
    assert.equal(service.failed, "RangeError: too far");
    await assert.rejects(client.run("n", () => Promise.reject(new AskedError("step-down", "ops", ""))), AskedError);
    assert.equal(service.failed, undefined);
  });

  test("run returns what the work did", async () => {
    assert.equal(await service.client(clock).run("n", (lock) => lock.token, { waitMs: 0 }), 1);
    assert.equal(service.holder, undefined);
  });

  test("dispose", async () => {
    const lock = await acquire();
    await lock[Symbol.asyncDispose]();
    assert.equal(service.holder, undefined);
  });
});

describe("acquiring", () => {
  test("try", async () => {
    service.takeAway();
    await assert.rejects(acquire({ waitMs: 0 }), (error) => {
      assert.ok(error instanceof HeldError);
      assert.deepEqual([error.holder, error.token, error.freeInMs], ["another", 1, 500]);
      return true;
    });
    assert.equal(service.bodies("/v1/acquire")[0]!["wait_ms"], 0);
  });

  test("waits", async () => {
    service.takeAway();
    const holders: string[] = [];
    await acquire({
      owner: "me",
      waiting: (held) => {
        holders.push(held.holder);
        service.holder = undefined;
      },
    });
    assert.deepEqual(holders, ["another"]);
    const sent = service.bodies("/v1/acquire").map((body) => [body["owner"], body["wait_ms"]]);
    assert.deepEqual(sent, [["me", 0], ["me", 20000]]);
  });

  test("a stream tells of each holder", async () => {
    service.takeAway();
    const told: unknown[] = [];
    const first = { holder: "another", token: 1 };
    const kept = { holder: "b", token: 1, free_in_ms: 500, reserved: true };
    service.streams.push([first, first, { holder: "a", token: 2 }, kept]);
    await acquire({
      waiting: (held) => {
        told.push([held.holder, held.token, held.reserved]);
        service.holder = held.reserved ? undefined : service.holder;
      },
    });
    assert.deepEqual(told, [["another", 1, false], ["a", 2, false], ["b", 1, true]]);
    assert.deepEqual(service.streamed.map((body) => body["wait_ms"]), [20000]);
  });

  test("a grant in a stream is no lease", async () => {
    service.takeAway();
    service.faults["/v1/heartbeat"] = [slow(1000, lost), slow(1000)];
    const lock = await acquire({
      waiting: () => {
        // The grant is on its way for a while.
        service.holder = undefined;
        clock.now += 2000;
      },
    });
    // Not from when the grant came: from before the first sending of the heartbeat.
    assert.equal(lock.remaining(), 10_000);
    lock.check();
  });

  test("a stream that fails is followed by a long poll", async () => {
    service.takeAway();
    const calls: string[] = [];
    const cut = new Error("cut");
    service.streams.push(cut, [{ holder: "a", token: 2 }], cut, cut);
    const { transport } = service;
    const noting: Transport = async (call) => {
      if (call.path === "/v1/acquire") {
        calls.push(call.onText ? "stream" : "poll");
        service.holder = calls.length > 8 ? undefined : service.holder;
      }
      return transport(call);
    };
    const lock = await new Client("http://127.0.0.1:1", { token: "t", transport: noting }).acquire("n", { waiting: () => undefined });
    locks.push(lock);
    // The first only tries. One stream is good, and after two that are not there are no more.
    assert.deepEqual(calls, ["poll", "stream", "poll", "stream", "stream", "poll", "stream", "poll", "poll"]);
  });

  test("what the callback throws ends the acquire", async () => {
    service.takeAway();
    service.streams.push([{ holder: "a", token: 2 }]);
    const waiting = (held: HeldError): void => {
      if (held.holder === "a") {
        throw new Error("of the program");
      }
    };
    await assert.rejects(acquire({ waiting }), /of the program/);
    assert.equal(service.streamed.length, 1);
  });

  test("the wait ends", async () => {
    service.takeAway();
    await assert.rejects(acquire({ waitMs: 200 }), HeldError);
    assert.ok(service.bodies("/v1/acquire").length >= 2);
  });

  test("a lost grant is no lock", async () => {
    service.faults["/v1/acquire"] = [
      (s, path, body) => {
        s.carryOut(path, body);
        s.holder = undefined; // nobody's heartbeat came
        throw new Error("lost");
      },
    ];
    assert.equal((await acquire()).token, 2);
  });

  test("a grant that is freed before its heartbeat", async () => {
    service.faults["/v1/heartbeat"] = [
      (s, path, body) => {
        s.holder = undefined;
        return s.carryOut(path, body);
      },
    ];
    assert.equal((await acquire()).token, 2);
  });

  test("aborted", async () => {
    const control = new AbortController();
    service.faults["/v1/acquire"] = [
      (s, path, body) => {
        control.abort(new Error("given up"));
        return s.carryOut(path, body); // the grant comes after all
      },
    ];
    await assert.rejects(acquire({ signal: control.signal }), /given up/);
    assert.equal(service.holder, undefined);
    assert.deepEqual(service.bodies("/v1/heartbeat"), []);
  });

  test("refused", async () => {
    service.faults["/v1/acquire"] = [() => problem("forbidden", 403)];
    await assert.rejects(acquire(), ProblemError);
  });

  test("no server", async () => {
    service.always["/v1/acquire"] = dropped;
    await assert.rejects(service.client(clock, 3).acquire("n", { waitMs: 0 }), UnavailableError);
    assert.equal(new Set(service.calls.map((call) => call.server)).size, 3); // each was asked
  });

  test("no server any more", async () => {
    // Who held the lock when a server last answered is not who holds it.
    service.takeAway();
    service.faults["/v1/acquire"] = [(service, path, body) => service.carryOut(path, body)];
    service.always["/v1/acquire"] = dropped;
    await assert.rejects(service.client(clock, 3).acquire("n", { waitMs: 1000 }), UnavailableError);
  });

  test("a mistake that stays is told at once", async () => {
    const wrong = (): never => {
      throw Object.assign(new Error("self-signed certificate"), { code: "DEPTH_ZERO_SELF_SIGNED_CERT" });
    };
    service.faults["/v1/acquire"] = [wrong, dropped, wrong, wrong]; // by two servers in turn
    await assert.rejects(service.client(clock, 2).acquire("n"), (e) => e instanceof UnavailableError && /: self-signed/.test(e.message));
    assert.equal(service.bodies("/v1/acquire").length, 4);
  });

  test("servers that end tell to ask elsewhere", async () => {
    service.faults["/v1/acquire"] = [() => problem("unavailable", 503)];
    locks.push(await service.client(clock, 2).acquire("n", { waitMs: 0 }));
    const [first, second] = service.calls;
    assert.notEqual(first!.server, second!.server);
  });

  test("arguments", async () => {
    await assert.rejects(service.client().acquire(""), TypeError);
    await assert.rejects(acquire({ waitMs: -1 }), TypeError);
    await assert.rejects(acquire({ stopTimeoutMs: 0 }), TypeError);
    for (const servers of [[], "127.0.0.1:1", "ftp://x", "http://", "unix:x", "http://h/?q"]) {
      assert.throws(() => new Client(servers), TypeError, String(servers));
    }
    for (const token of ["", "two words", "ümlaut", "line\n"]) {
      assert.throws(() => new Client("http://h", { token }), TypeError, token);
    }
  });
});

describe("a process", () => {
  /** Runs a program with a client, whose heartbeats are due soon, and returns what it has printed. */
  async function program(text: string): Promise<string> {
    const url = (name: string): string => JSON.stringify(new URL(name, import.meta.url).href);
    const whole = `
      import { Service } from ${url("./fake.js")};
      const service = new Service();
      service.heartbeatMs = 50;
      const client = service.client();
      ${text}`;
    const args = ["--input-type=module", "--eval", whole];
    const { stdout } = await promisify(execFile)(process.execPath, args, { timeout: SOON, cwd: fileURLToPath(new URL(".", import.meta.url)) });
    return stdout;
  }

  test("ends beside a lock that nobody releases", async () => {
    assert.equal(await program(`await client.acquire("n"); console.log("done");`), "done\n");
  });

  test("goes on while run waits for work that waits for its signal alone", async () => {
    const printed = await program(`
      setTimeout(() => { service.asked = { kind: "step-down", by: "ops" }; }, 300).unref();
      await client.run("n", (lock) => new Promise((resolve) => lock.signal.addEventListener("abort", resolve)));
      console.log("released", service.holder);`);
    assert.equal(printed, "released undefined\n");
  });
});

describe("a token above 2^53 - 1", () => {
  const big = "9007199254740993"; // 2^53 + 1, which becomes 2^53 as a number
  const withToken = (reply: Reply): Reply => ({ ...reply, body: reply.body.replace(/"token":1\b/, `"token":${big}`) });

  test("ends the acquire, whatever the wait, and is named whole", async () => {
    service.always["/v1/acquire"] = (s, path, body) => withToken(s.carryOut(path, body));
    await assert.rejects(acquire(), (error: Error) => error instanceof TokenError && error.message.includes(big));
    assert.equal(service.calls.filter((call) => call.path === "/v1/acquire").length, 1);
  });

  test("of another holder is shown as unknown", async () => {
    service.always["/v1/acquire"] = () => withToken(problem("held", 409, { holder: "a", token: 1, free_in_ms: 1 }));
    await assert.rejects(acquire({ waitMs: 0 }), (error: Error) => error instanceof HeldError && error.token === 0);
  });
});
