// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** A session against a service in memory: what counts, what is sent again, what ends its locks. @module */

import assert from "node:assert/strict";
import test, { afterEach, beforeEach, describe } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import {
  AskedError,
  ExpiredError,
  HeldError,
  LostError,
  NoSessionsError,
  ProblemError,
  ReleasedError,
  UnavailableError,
  UncertainError,
  type Session,
  type SessionOptions,
} from "../src/index.js";
import { step } from "../src/heartbeats.js";
import {
  answer,
  badGateway,
  doubled,
  dropped,
  hang,
  lost,
  ManualClock,
  problem,
  type Body,
  type Fault,
} from "./fake.js";
import { ManyLocks, refused } from "./fakesession.js";

const SOON = 30_000;
const OPEN = "/v1/sessions/open";
const BEAT = "/v1/sessions/heartbeat";
const ATTACH = "/v1/sessions/attach";
const RELEASE = "/v1/sessions/release";
const CLOSE = "/v1/sessions/close";

step.ms = 10; // how soon a clock that was moved is read

let service: ManyLocks;
let clock: ManualClock;
let sessions: Session[];

beforeEach(() => {
  service = new ManyLocks();
  clock = new ManualClock();
  sessions = [];
});

afterEach(async () => {
  for (const path of Object.keys(service.always)) {
    delete service.always[path];
  }
  await Promise.all(sessions.map((session) => session.close().catch(() => undefined)));
});

async function open(options: SessionOptions = {}): Promise<Session> {
  const session = await service.client(clock).session(options);
  sessions.push(session);
  return session;
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

/** Lets a heartbeat of the session be due, and waits until it is answered. */
async function beats(session: Session): Promise<void> {
  clock.now += 3000;
  await until(() => session.remaining() === 12_000);
}

function ask(id: string, lock: { name: string; token: number }, kind = "step-down"): Body {
  const { name, token } = lock;
  return { id, name, token, kind, by: "ops", reason: "deploy" };
}

/** Says that no more calls of the path come. */
async function quiet(path: string): Promise<void> {
  const count = service.bodies(path).length;
  await pause(100);
  assert.equal(service.bodies(path).length, count);
}

describe("the heartbeats of a session", () => {
  test("count, and the opening does not", async () => {
    service.faults[OPEN] = [slow(4000)];
    service.faults[BEAT] = [slow(1000)];
    const session = await open({ owner: "me", label: "v7" });
    assert.equal(session.remaining(), 11_000);
    session.check();
    const { owner, label } = service.bodies(OPEN)[0]!;
    assert.deepEqual([session.id, session.owner, owner, label], ["S1", "me", "me", "v7"]);
  });

  test("a first one that comes in time after the opening counts", async () => {
    service.faults[OPEN] = [slow(9000)];
    service.faults[BEAT] = [slow(2999)];
    assert.equal((await open()).remaining(), 9001);
  });

  test("a first one that comes late after the opening is of no session", async () => {
    service.faults[OPEN] = [slow(9000)];
    service.faults[BEAT] = [slow(3000)];
    const session = await open();
    assert.deepEqual([session.id, session.remaining()], ["S2", 12_000]);
    assert.equal(service.bodies(OPEN).length, 2);
  });

  test("are sent again as they were, and count from the first sending", async () => {
    const refusals: Fault[] = [() => problem("limited", 429), () => problem("unknown", 503)];
    service.faults[BEAT] = [slow(2000, lost), dropped, badGateway, ...refusals];
    assert.equal((await open()).remaining(), 10_000);
    const sent = service.bodies(BEAT);
    assert.equal(sent.length, 6);
    sent.forEach((body) => assert.deepEqual(body, sent[0]));
  });

  test("never move the deadline back", async () => {
    const session = await open();
    service.usableMs = 5000;
    service.heartbeatMs = 1000;
    clock.now += 3000;
    await until(() => service.bodies(BEAT).length === 2);
    await pause(50);
    assert.equal(session.remaining(), 9000);
  });

  test("410 ends all locks at once, for ever", async () => {
    const session = await open();
    const locks = [await session.acquire("a"), await session.acquire("b")];
    service.session = "another";
    clock.now += 3000;
    await Promise.all([...locks, session].map(({ over }) => aborted(over)));
    locks.forEach((lock) => assert.throws(() => lock.check(), LostError));
    assert.throws(() => session.check(), LostError);
    await assert.rejects(session.acquire("c"), LostError);
    assert.ok(locks[0]!.signal.reason instanceof LostError);
    await assert.rejects(locks[0]!.release(), LostError);
    await assert.rejects(session.close(), LostError);
  });

  test("the deadline needs no network, and ends all locks", async () => {
    const session = await open();
    const locks = [await session.acquire("a"), await session.acquire("b")];
    service.always[BEAT] = hang;
    clock.now += 11_999;
    locks.forEach((lock) => lock.check());
    clock.now += 1;
    locks.forEach((lock) => assert.throws(() => lock.check(), ExpiredError));
    locks.forEach((lock) => assert.equal(lock.remaining(), 0));
    await Promise.all([...locks, session].map(({ over }) => aborted(over)));
    delete service.always[BEAT];
    await assert.rejects(locks[0]!.release(), ExpiredError);
    assert.deepEqual(service.bodies(RELEASE), []);
  });

  test("no answer to the opening: another is opened", async () => {
    service.faults[OPEN] = [lost, badGateway, () => problem("unavailable", 503)];
    assert.equal((await open()).id, "S4");
  });

  test("a store without sessions", async () => {
    service.always[OPEN] = () => problem("no-sessions", 409);
    await assert.rejects(open(), (e) => e instanceof NoSessionsError && e.kind === "no-sessions");
    service.always[OPEN] = () => problem("forbidden", 403);
    await assert.rejects(open(), (e) => e instanceof ProblemError && !(e instanceof NoSessionsError));
    service.always[OPEN] = dropped;
    await assert.rejects(open({ waitMs: 0 }), UnavailableError);
  });

  test("an opening that is given up", async () => {
    const control = new AbortController();
    service.always[BEAT] = hang;
    const opening = open({ signal: control.signal });
    await until(() => service.bodies(BEAT).length === 1);
    control.abort(new Error("given up"));
    await assert.rejects(opening, /given up/);
    await until(() => service.bodies(CLOSE).length > 0); // with the newest beat
    assert.equal(service.bodies(CLOSE)[0]!["after"], service.bodies(BEAT)[0]!["next"]);
  });
});

describe("a lock under a session", () => {
  test("is acquired, and attached", async () => {
    service.counts = true;
    const session = await open({ owner: "me" });
    const lock = await session.acquire("a", { data: Uint8Array.of(104, 105) });
    lock.check();
    const { owner, data } = service.bodies("/v1/acquire")[0]!;
    assert.deepEqual([owner, data], ["me", "aGk="]);
    const { beat, locks } = service.bodies(ATTACH)[0]!;
    assert.equal(beat, service.bodies(BEAT)[0]!["next"]);
    assert.match(locks[0]["next"], /^t1-[0-9A-Za-z]{13}$/);
    const { next: _, ...rest } = locks[0];
    assert.deepEqual([locks.length, rest], [1, { name: "a", token: 1, after: "t1-0000000000000" }]);
    assert.notEqual(locks[0]["next"], locks[0]["after"]);
    // It has no heartbeats of its own, and the deadline of the session.
    for (let n = 0; n < 3; n++) {
      await beats(session);
    }
    assert.deepEqual(service.bodies("/v1/heartbeat"), []);
    assert.equal(lock.remaining(), 12_000);
  });

  test("counts once the attachment is confirmed, by the session's deadline", async () => {
    service.counts = true;
    const session = await open();
    service.faults["/v1/acquire"] = [slow(1000)];
    service.faults[ATTACH] = [slow(1000)];
    const lock = await session.acquire("a");
    assert.equal(lock.remaining(), 10_000);
  });

  test("an attachment without an answer is sent again as it was", async () => {
    const session = await open();
    const of = (kind: string, status: number): Fault => () => {
      return answer({ results: [{ name: "a", asked: null, problem: refused(kind, status) }] });
    };
    const odd: Fault = () => answer({ results: [] });
    const refusals = Object.entries({ unknown: 503, limited: 429, unauthenticated: 401, forbidden: 403 });
    const said = refusals.map(([kind, status]) => of(kind, status));
    service.faults[ATTACH] = [lost, dropped, badGateway, odd, () => problem("unknown", 503), ...said, doubled];
    (await session.acquire("a")).check();
    const sent = service.bodies(ATTACH);
    assert.equal(sent.length, 10);
    sent.forEach((body) => assert.deepEqual(body, sent[0]));
  });

  test("is acquired again if it was freed before the attachment", async () => {
    const session = await open();
    service.faults[ATTACH] = [
      (s, path, body) => {
        service.locks.get("a")!.holder = undefined;
        return s.carryOut(path, body);
      },
    ];
    const lock = await session.acquire("a");
    assert.equal(lock.token, 2);
    assert.deepEqual(service.bodies(RELEASE), []);
  });

  test("is not held if the session ends before the answer", async () => {
    for (const end of [slow(12_000), (): Body => problem("lost", 410)] as Fault[]) {
      const session = await open();
      service.faults[ATTACH] = [end];
      await assert.rejects(session.acquire("a"), LostError); // ExpiredError is one
      assert.throws(() => session.check(), LostError);
      service.locks.clear();
    }
  });

  test("an attachment that is refused ends the acquire", async () => {
    const session = await open();
    service.faults[ATTACH] = [() => problem("bad-request", 400)];
    await assert.rejects(session.acquire("a"), ProblemError);
    assert.ok(!service.held("a"));
  });

  test("an acquire that is given up releases what it may have attached", async () => {
    const session = await open();
    const control = new AbortController();
    service.faults[ATTACH] = [
      (s, path, body) => {
        s.carryOut(path, body);
        control.abort(new Error("given up"));
        throw new Error("the answer was lost");
      },
    ];
    await assert.rejects(session.acquire("a", { signal: control.signal }), /given up/);
    assert.ok(!service.held("a"));
    assert.equal(service.bodies(RELEASE).length, 1);
  });

  test("is released: the same call until it is answered", async () => {
    const session = await open();
    const [lock, other] = [await session.acquire("a"), await session.acquire("b")];
    const checked: unknown[] = [];
    const watched: Fault = (...call) => {
      checked.push(lock.remaining());
      return badGateway(...call);
    };
    const unknown: Fault = () => answer({ results: [{ name: "a", problem: refused("unknown", 503) }] });
    service.faults[RELEASE] = [watched, dropped, unknown, watched];
    await lock.release({ data: Uint8Array.of(104, 105), failed: "disk full" });
    assert.throws(() => lock.check(), ReleasedError);
    assert.deepEqual(checked, [0, 0]);
    const sent = service.bodies(RELEASE);
    assert.equal(sent.length, 5);
    sent.forEach((body) => assert.deepEqual(body, sent[0]));
    const { after, next } = service.bodies(ATTACH)[0]!["locks"][0];
    const released = { name: "a", token: 1, after, next, data: "aGk=", failed: "disk full" };
    assert.deepEqual(sent[0], { session: "S1", locks: [released] });
    assert.ok(!service.held("a"));
    other.check();
  });

  test("a release goes on until the session ends", async () => {
    const session = await open();
    const lock = await session.acquire("a");
    service.always[RELEASE] = dropped;
    const released = lock.release();
    for (let n = 0; n < 10; n++) {
      await beats(session);
    }
    const count = service.bodies(RELEASE).length;
    await until(() => service.bodies(RELEASE).length > count);
    service.always[BEAT] = dropped;
    clock.now += 12_000;
    await assert.rejects(released, UncertainError);
  });

  test("run", async () => {
    const session = await open();
    assert.equal(await session.run("a", (lock) => lock.token), 1);
    assert.ok(!service.held("a"));
    await assert.rejects(session.run("a", () => Promise.reject(new RangeError("too far"))), RangeError);
    assert.equal(service.locks.get("a")!.failed, "RangeError: too far");
  });

  test("many are acquired at a time, without a warning of Node", async () => {
    const session = await open();
    const warnings: string[] = [];
    const warned = (warning: Error): unknown => warnings.push(warning.message);
    process.on("warning", warned);
    const locks = await Promise.all(Array.from({ length: 30 }, (_, i) => session.acquire(`n${i}`)));
    await pause(10);
    process.off("warning", warned);
    locks.forEach((lock) => lock.check());
    assert.deepEqual(warnings, []);
  });

  test("is held by another", async () => {
    const session = await open();
    await session.acquire("a");
    await assert.rejects(session.acquire("a", { waitMs: 0 }), HeldError);
  });
});

describe("requests to locks under a session", () => {
  test("are for single locks, and answered when these are released", async () => {
    const session = await open();
    const [lock, other] = [await session.acquire("a"), await session.acquire("b")];
    service.requests = [ask("q1", lock, "hand-over")];
    await beats(session);
    await aborted(lock.signal);
    assert.ok(lock.signal.reason instanceof AskedError && lock.asked?.kind === "hand-over");
    lock.check(); // while the work stops
    assert.ok(!lock.over.aborted && !other.signal.aborted && other.asked === undefined);
    await beats(session);
    service.always[RELEASE] = dropped;
    const released = lock.release();
    await beats(session);
    delete service.always[RELEASE];
    await released;
    service.faults[BEAT] = [lost, dropped];
    await beats(session);
    const answered = service.bodies(BEAT).map((body) => body["answered"]);
    // The same heartbeat again says the same.
    assert.deepEqual(answered.slice(-3), [["q1"], ["q1"], ["q1"]]);
    answered.slice(0, -3).forEach((said) => assert.equal(said, undefined));
    assert.deepEqual(service.requests, []);
    await beats(session);
    assert.equal(service.bodies(BEAT).at(-1)!["answered"], undefined);
    other.check();
  });

  test("for what the client does not hold are answered at once", async () => {
    const session = await open();
    const lock = await session.acquire("a");
    service.requests = [ask("q1", { name: "a", token: 7 }), ask("q2", { name: "x", token: 1 })];
    await beats(session);
    await beats(session);
    assert.deepEqual(service.bodies(BEAT).at(-1)!["answered"], ["q1", "q2"]);
    assert.equal(lock.asked, undefined);
  });

  test("for a lock whose attachment has no answer are not answered", async () => {
    const session = await open();
    service.always[ATTACH] = lost;
    const acquiring = session.acquire("a");
    await until(() => service.bodies(ATTACH).length > 0);
    service.requests = [ask("q1", { name: "a", token: 1 })];
    await beats(session);
    await beats(session);
    assert.equal(service.bodies(BEAT).at(-1)!["answered"], undefined);
    delete service.always[ATTACH];
    const lock = await acquiring;
    await aborted(lock.signal);
    assert.equal(lock.asked?.kind, "step-down");
  });

  test("that came before the attachment", async () => {
    const session = await open();
    const asked = { kind: "step-down", by: "ops", reason: "deploy" };
    service.faults[ATTACH] = [(s, path, body) => (s.carryOut(path, body), answer({ results: [{ name: "a", asked }] }))];
    const lock = await session.acquire("a");
    assert.ok(lock.signal.reason instanceof AskedError);
    lock.check();
  });

  test("work that does not stop loses the lock, and the session releases it", async () => {
    const session = await open();
    const lock = await session.acquire("a", { stopTimeoutMs: 5000 });
    service.requests = [ask("q1", lock)];
    await beats(session);
    await aborted(lock.signal);
    assert.equal(lock.remaining(), 5000);
    clock.now += 4999;
    lock.check();
    clock.now += 1;
    assert.throws(() => lock.check(), ExpiredError);
    await aborted(lock.over);
    await until(() => session.remaining() > 7000);
    assert.ok(service.held("a"));
    for (let n = 0; n < 4; n++) {
      await beats(session);
    }
    assert.ok(service.held("a"));
    clock.now += 3000; // a lease after that
    await until(() => !service.held("a"));
    assert.equal(service.locks.get("a")!.failed, "the work did not stop in time");
    await assert.rejects(lock.release(), ExpiredError);
    session.check();
  });
});

describe("closing", () => {
  test("ends the work, then the heartbeats, then the session", async () => {
    const session = await open();
    const locks = [await session.acquire("a"), await session.acquire("b")];
    const order: string[] = [];
    let end = (): void => undefined;
    const working = session.run("c", (lock) => {
      return new Promise<void>((resolve) => {
        lock.over.addEventListener("abort", () => order.push("told"));
        end = () => (order.push("ended"), resolve());
      });
    });
    await until(() => service.held("c"));
    await pause(10);
    service.faults[CLOSE] = [
      (s, path, body) => {
        order.push("closed");
        assert.equal(Math.max(...[...locks, session].map((held) => held.remaining())), 0);
        return s.carryOut(path, body);
      },
    ];
    const closing = session.close();
    [...locks, session].forEach((held) => assert.throws(() => held.check(), ReleasedError));
    [...locks, session].forEach((held) => assert.ok(held.over.aborted));
    clock.now += 3000; // heartbeats go on while the work stops
    await until(() => service.bodies(BEAT).length === 2);
    await pause(50);
    assert.deepEqual(order, ["told"]);
    end();
    await closing;
    await working;
    assert.deepEqual(order, ["told", "ended", "closed"]);
    assert.ok(!service.held("a") && !service.held("b"));
    clock.now += 3000;
    await quiet(BEAT);
    await assert.rejects(session.acquire("d"), ReleasedError);
    await session.close(); // again
    assert.equal(service.bodies(CLOSE).length, 1);
  });

  test("waits for work that does not end for a lease at most", async () => {
    service.leaseMs = 300;
    const session = await open();
    void session.run("a", () => new Promise((resolve) => setTimeout(resolve, 60_000).unref())).catch(() => undefined);
    await until(() => service.bodies(ATTACH).length === 1);
    await pause(10);
    await assert.rejects(session.close(), (error: Error) => {
      return error instanceof UncertainError && /expires: work under its locks did not end in time/.test(error.message);
    });
    assert.ok(service.held("a")); // until the session expires
    await quiet(BEAT);
    assert.equal(service.bodies(CLOSE).length, 0);
  });

  test("names the newest beat, and then the confirmed one", async () => {
    for (const applied of [true, false]) {
      service.calls.length = 0;
      const session = await open();
      service.faults[BEAT] = [applied ? lost : dropped];
      service.always[BEAT] = hang;
      clock.now += 3000;
      await until(() => service.bodies(BEAT).length === 3);
      await session.close();
      const { after, next } = service.bodies(BEAT).at(-1)!;
      assert.deepEqual(service.bodies(CLOSE).map((body) => body["after"]), applied ? [next] : [next, after]);
      delete service.always[BEAT];
    }
  });

  test("is repeated without an answer, for a lease at most", async () => {
    const session = await open();
    service.faults[CLOSE] = [badGateway, dropped];
    await session.close();
    assert.equal(service.bodies(CLOSE).length, 3);
    const other = await open();
    service.always[CLOSE] = slow(8000, dropped);
    await assert.rejects(other.close(), UncertainError);
    await other[Symbol.asyncDispose](); // which is no failure of the work
  });

  test("ends the acquires that wait", async () => {
    const session = await open();
    const lock = await session.acquire("b");
    const waiting = assert.rejects(session.acquire("b"), ReleasedError);
    const all = assert.rejects(session.acquireAll(["a", "b"]), ReleasedError);
    await until(() => service.bodies(ATTACH).length === 2);
    await session.close();
    await Promise.all([waiting, all]);
    await lock.release(); // the closing has freed it
    assert.ok(!service.held("a") && !service.held("b"));
  });

  test("withSession", async () => {
    const client = service.client(clock);
    assert.equal(await client.withSession(async (session) => (await session.acquire("a")).token), 1);
    assert.ok(!service.held("a"));
    await assert.rejects(client.withSession(() => Promise.reject(new RangeError("too far"))), RangeError);
    assert.equal(service.bodies(CLOSE).length, 2);
  });
});

describe("all or none", () => {
  const names = (path: string): unknown[] => {
    return service.bodies(path).map((body) => body["name"] ?? body["locks"].map((one: Body) => one["name"]));
  };

  test("in the order of their UTF-8, attached by one call", async () => {
    const session = await open();
    const locks = await session.acquireAll(["b", "\u{10000}", "\uffee", "a"]);
    assert.deepEqual(locks.map((lock) => lock.name), ["b", "\u{10000}", "\uffee", "a"]);
    locks.forEach((lock) => lock.check());
    assert.deepEqual(names("/v1/acquire"), ["a", "b", "\uffee", "\u{10000}"]);
    assert.deepEqual(names(ATTACH), [["a", "b", "\uffee", "\u{10000}"]]);
  });

  test("up to 100 by one call", async () => {
    const session = await open();
    const locks = await session.acquireAll(Array.from({ length: 201 }, (_, i) => `n${i}`));
    locks.forEach((lock) => lock.check());
    assert.deepEqual(service.bodies(ATTACH).map((body) => body["locks"].length), [100, 100, 1]);
  });

  test("none if one is held by another", async () => {
    const other = await open();
    await other.acquire("c");
    service.session = "";
    const session = await open();
    await assert.rejects(session.acquireAll(["c", "b", "a"], { waitMs: 0 }), HeldError);
    assert.ok(!service.held("a") && !service.held("b"));
  });

  test("what is granted is attached while the next one waits", async () => {
    service.leaseMs = 2500; // a tenth of which is the shortest limit of a call
    const other = await open();
    const held = await other.acquire("b");
    const id = service.session;
    const session = await open();
    const all = session.acquireAll(["a", "b", "c"]);
    await until(() => service.bodies(ATTACH).length === 2);
    assert.deepEqual(names(ATTACH).at(-1), ["a"]);
    service.locks.get(held.name)!.holder = undefined;
    (await all).forEach((lock) => lock.check());
    assert.deepEqual(names(ATTACH).at(-1), ["b", "c"]);
    assert.notEqual(id, session.id);
  });

  test("taken again if one was lost before", async () => {
    const session = await open();
    service.faults[ATTACH] = [
      (s, path, body) => {
        service.locks.get("a")!.holder = undefined;
        return s.carryOut(path, body);
      },
    ];
    const locks = await session.acquireAll(["a", "b"]);
    locks.forEach((lock) => lock.check());
    assert.deepEqual(locks.map((lock) => lock.token), [2, 2]);
    await assert.rejects(session.acquireAll(["x", "x"]), TypeError);
  });

  test("given up", async () => {
    const session = await open();
    const control = new AbortController();
    service.faults["/v1/acquire"] = [
      (s, path, body) => s.carryOut(path, body),
      (s, path, body) => {
        control.abort(new Error("given up"));
        return s.carryOut(path, body);
      },
    ];
    await assert.rejects(session.acquireAll(["a", "b"], { signal: control.signal }), /given up/);
    assert.ok(!service.held("a") && !service.held("b"));
  });

  test("none if the session ends before all are attached", async () => {
    const session = await open();
    service.faults[ATTACH] = [slow(12_000)];
    await assert.rejects(session.acquireAll(["a", "b"]), ExpiredError);
  });
});
