// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** Semaphores, and locks for readers and writers, against a service in memory. @module */

import assert from "node:assert/strict";
import test, { afterEach, beforeEach, describe } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { AskedError, HeldError, ProblemError, TokenError, UnavailableError, type Lock } from "../src/index.js";
import { readAcquire } from "../src/answers.js";
import { step } from "../src/heartbeats.js";
import { answer, badGateway, dropped, ManualClock, problem, type Body, type Fault } from "./fake.js";
import { ManyLocks } from "./fakesession.js";

const SOON = 30_000;
const DRAIN = "/v1/drain";

step.ms = 10; // how soon a clock that was moved is read

let service: ManyLocks;
let clock: ManualClock;
let locks: Lock[];

beforeEach(() => {
  service = new ManyLocks();
  service.counts = true;
  clock = new ManualClock();
  locks = [];
});

afterEach(async () => {
  for (const path of Object.keys(service.always)) {
    delete service.always[path];
  }
  await Promise.all(locks.map((lock) => lock.release().catch(() => undefined)));
});

async function kept<L extends Lock>(acquiring: Promise<L>): Promise<L> {
  const lock = await acquiring;
  locks.push(lock);
  return lock;
}

async function until(condition: () => boolean): Promise<void> {
  for (const limit = performance.now() + SOON; !condition(); ) {
    assert.ok(performance.now() < limit, "it never came");
    await pause(5);
  }
}

/** What the last release has left in a lock. */
const left = (name: string): unknown => service.locks.get(name)?.data;

describe("a semaphore", () => {
  test("has so many slots", async () => {
    const renders = service.client(clock).semaphore("renders", 2);
    const [first, second] = [await kept(renders.acquire({ history: true })), await kept(renders.acquire())];
    assert.deepEqual([first.name, first.slot, first.slots, first.token], ["renders:slot/0", 0, 2, 1]);
    assert.deepEqual([second.name, second.slot, second.fenceToken], ["renders:slot/1", 1, 1]);
    assert.equal(service.bodies("/v1/acquire")[0]!["slots"], 2);
    assert.deepEqual(service.bodies("/v1/acquire").map((body) => body["history"]), [true, undefined]);
    const full = (error: unknown): boolean => error instanceof HeldError && error.lock === "renders";
    await assert.rejects(renders.acquire({ waitMs: 0 }), full);
    await first.release();
    assert.deepEqual(service.bodies("/v1/release").map((body) => body["name"]), ["renders:slot/0"]);
    const third = await kept(renders.acquire({ waitMs: 0 }));
    assert.deepEqual([third.slot, third.fenceToken], [0, 2]);
    clock.now += 3000;
    await until(() => third.remaining() === 12_000);
    const beats = service.bodies("/v1/heartbeat").map((body) => body["name"]);
    assert.deepEqual(beats.sort(), ["renders:slot/0", "renders:slot/1"]);
    assert.equal(await renders.run((slot) => slot.slot, { waitMs: 0 }).catch(() => "full"), "full");
  });

  test("arguments", () => {
    const client = service.client();
    for (const slots of [0, 1001, 1.5, NaN]) {
      assert.throws(() => client.semaphore("n", slots), TypeError);
    }
  });
});

describe("readers and writers", () => {
  test("read together, and write alone", async () => {
    const catalog = service.client(clock).rwlock("catalog");
    const [reader, other] = [await kept(catalog.read()), await kept(catalog.read())];
    assert.deepEqual([reader.name, reader.fenceToken, reader.lastWriter], ["catalog:read/0", 1, undefined]);
    assert.deepEqual([reader.token, reader.slot], [1, undefined]);
    await assert.rejects(catalog.write({ waitMs: 0 }), HeldError);
    await Promise.all([reader.release(), other.release()]);
    service.lastWriter = { owner: "w", token: 4, end: "expired" };
    const writer = await kept(catalog.write({ waitMs: 0 }));
    assert.deepEqual([writer.name, writer.fenceToken], ["catalog:gate", 2]);
    assert.deepEqual(writer.lastWriter, { owner: "w", token: 4, end: "expired" });
    await assert.rejects(catalog.read({ waitMs: 0 }), HeldError);
    await writer.release();
    assert.equal(left("catalog:gate"), undefined); // it has written
    assert.equal(await catalog.runRead((lock) => lock.fenceToken), 3);
    assert.equal(await catalog.runWrite((lock) => lock.fenceToken), 4);
    assert.deepEqual(service.bodies(DRAIN), []);
    const kinds = (body: Body): string => Object.keys(body).filter((key) => /shared|exclusive/.test(key)).join();
    const wants = service.bodies("/v1/acquire").map(kinds);
    assert.deepEqual(wants, ["shared", "shared", "exclusive", "exclusive", "shared", "shared", "exclusive"]);
  });

  test("a writer waits until the readers are gone, and holds the gate meanwhile", async () => {
    const catalog = service.client(clock).rwlock("catalog");
    const reader = await kept(catalog.read());
    service.faults[DRAIN] = [badGateway, dropped, () => problem("unknown", 503), () => problem("limited", 429)];
    service.faults[DRAIN].push(() => problem("unauthenticated", 401), () => problem("forbidden", 403));
    let writing = false;
    const told: string[] = [];
    const writer = kept(catalog.write({ waiting: (held) => told.push(held.holder) })).then((lock) => {
      writing = true;
      return lock;
    });
    await until(() => service.bodies(DRAIN).length > 7);
    clock.now += 3000;
    await until(() => service.bodies("/v1/heartbeat").some((body) => body["name"] === "catalog:gate"));
    assert.ok(!writing && service.held("catalog:gate"));
    assert.equal(told.at(-1), service.locks.get(reader.name)!.holder);
    await reader.release();
    (await writer).check();
    const { name, token, wait_ms: wait } = service.bodies(DRAIN)[0]!;
    assert.deepEqual([name, token, wait], ["catalog:gate", 1, 5000]);
  });

  test("a writer that gives up while it waits has not written", async () => {
    const catalog = service.client(clock).rwlock("catalog");
    await kept(catalog.read());
    await assert.rejects(catalog.write({ waitMs: 300 }), HeldError);
    assert.deepEqual([service.held("catalog:gate"), left("catalog:gate")], [false, "dW4="]);

    const control = new AbortController();
    service.locks.delete("catalog:gate");
    service.faults[DRAIN] = [(...call) => (control.abort(new Error("given up")), call[0].carryOut(call[1], call[2]))];
    await assert.rejects(catalog.write({ signal: control.signal }), /given up/);
    assert.deepEqual([service.held("catalog:gate"), left("catalog:gate")], [false, "dW4="]);

    service.locks.delete("catalog:gate");
    service.always[DRAIN] = () => problem("bad-request", 400);
    await assert.rejects(catalog.write(), ProblemError);
    service.always[DRAIN] = dropped;
    await assert.rejects(catalog.write({ waitMs: 300 }), UnavailableError);
    assert.deepEqual([service.held("catalog:gate"), left("catalog:gate")], [false, "dW4="]);
  });

  /** Has the drain end by the fault, and returns which writer writes at last. */
  async function afterwards(fault: Fault): Promise<Lock> {
    const catalog = service.client(clock).rwlock("catalog");
    const reader = await kept(catalog.read());
    service.faults[DRAIN] = [
      (s, path, body, call) => {
        void reader.release();
        return fault(s, path, body, call);
      },
    ];
    return kept(catalog.write());
  }

  test("readers that are gone when the gate has expired make no writer", async () => {
    const writer = await afterwards(() => {
      clock.now += 12_000;
      service.locks.get("catalog:gate")!.holder = undefined;
      return answer({});
    });
    assert.equal(writer.token, 2);
    writer.check();
  });

  test("a gate that is lost while it waits is taken again", async () => {
    const writer = await afterwards((_s, _path, { name }: Body) => {
      service.locks.get(name)!.holder = undefined;
      return problem("lost", 410);
    });
    assert.equal(writer.token, 2);
  });

  test("a writer that is asked while it waits goes, and comes again", async () => {
    const writer = await afterwards(async () => {
      service.asked = { kind: "step-down", by: "ops", reason: "deploy" };
      clock.now += 3000;
      await until(() => service.bodies("/v1/heartbeat").some((body) => body["name"] === "catalog:gate"));
      await pause(50);
      service.asked = null;
      return problem("held", 409, { holder: "a", token: 1, free_in_ms: 1 });
    });
    assert.deepEqual([writer.token, left("catalog:gate"), writer.asked], [2, "dW4=", undefined]);
    assert.ok(!(writer.signal.reason instanceof AskedError));
  });

  test("data of the gate are the lock's own", async () => {
    const catalog = service.client(clock).rwlock("catalog");
    await assert.rejects(catalog.write({ data: Uint8Array.of(1) }), TypeError);
    const writer = await kept(catalog.write());
    await assert.rejects(async () => writer.release({ data: Uint8Array.of(1) }), TypeError);
    writer.check();
  });
});

test("under a session", async () => {
  const session = await service.client(clock).session();
  const slot = await session.semaphore("renders", 3).acquire();
  const catalog = session.rwlock("catalog");
  const reader = await catalog.read();
  const writing = catalog.write();
  await until(() => service.bodies(DRAIN).length > 1);
  await reader.release();
  const writer = await writing;
  const derived = ["renders:slot/0", "catalog:read/0", "catalog:gate"];
  assert.deepEqual([slot, reader, writer].map((lock) => lock.name), derived);
  assert.deepEqual([slot.slot, slot.slots, writer.fenceToken], [0, 3, 2]);
  writer.check();
  assert.deepEqual(service.bodies("/v1/heartbeat"), []);
  const names = service.bodies("/v1/sessions/attach").map((body) => body["locks"][0]["name"]);
  assert.deepEqual(names, derived);
  assert.equal(await session.semaphore("renders", 3).run(({ slot }) => slot), 1);

  await writer.release();
  const other = await catalog.read();
  await assert.rejects(catalog.write({ waitMs: 300 }), HeldError); // a drain that is given up
  const last = service.bodies("/v1/sessions/release").at(-1)!["locks"][0];
  assert.deepEqual([last["name"], last["data"]], ["catalog:gate", "dW4="]);
  other.check();
  await session.close();
  assert.ok(!service.held(slot.name) && !service.held(other.name));
});

test("answers that are of another lock, or of none", () => {
  const grant = { token: 7, beat: "a-b", lease_ms: 15000, heartbeat_ms: 3000, free_after_ms: 5000 };
  const read = (kind: "slots" | "shared" | "exclusive", more: Body): string => {
    return readAcquire(answer({ ...grant, ...more }), "n", kind).is;
  };
  const slot = { name: "n:slot/2", slot: 2, slots: 3 };
  assert.equal(read("slots", slot), "granted");
  for (const name of ["n", "m:slot/2", "n:slot/x", "nn:slot/2", "n:gate"]) {
    assert.equal(read("slots", { ...slot, name }), "unknown", name);
  }
  for (const more of [{ slot: 1 }, { slots: "3" }, { slot: undefined }]) {
    assert.equal(read("slots", { ...slot, ...more }), "unknown", JSON.stringify(more));
  }
  const last = { owner: "w", token: 6, end: "lost" };
  const gate = { name: "n:gate", fence_token: 14, unwritten: "dW4=", drain: true, last_writer: last };
  assert.equal(read("exclusive", gate), "granted");
  assert.equal(read("shared", { name: "n:read/3", fence_token: 15 }), "granted");
  const odd = [{ name: "n:read/1" }, { fence_token: undefined }, { drain: "yes" }, { unwritten: "a=b" }];
  for (const more of [...odd, { last_writer: "w" }, { last_writer: { owner: "w" } }]) {
    assert.equal(read("exclusive", { ...gate, ...more }), "unknown", JSON.stringify(more));
  }
  const body = JSON.stringify({ ...grant, ...gate }).replace("14", "9007199254740993");
  const big = readAcquire({ ...answer({}), body }, "n", "exclusive");
  assert.ok(big.is === "unknown" && big.error instanceof TokenError && big.error.message.includes("9007199254740993"));
});
