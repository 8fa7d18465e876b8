// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** Against a real service: clients/test starts it, and says in the environment where it is. @module */

import assert from "node:assert/strict";
import { execFile, spawn } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import test, { afterEach, type TestContext } from "node:test";
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
  UnavailableError,
  type AcquireOptions,
  type Lock,
  type Session,
  type Transport,
} from "../src/index.js";
import { defaultTransport } from "../src/transport.js";

const SOON = 60_000;
const servers = (process.env["TENURE_TEST_SERVERS"] ?? "").split(",");
const tokenFile = process.env["TENURE_TEST_TOKEN_FILE"] ?? "";
const tenured = process.env["TENURE_TEST_TENURED"] ?? "";
const skip = servers[0] ? false : "no service: see clients/test";
const root = fileURLToPath(new URL("../../", import.meta.url));

let locks: Lock[] = [];

afterEach(async () => {
  await Promise.all(locks.map((lock) => lock.release().catch(() => undefined)));
  locks = [];
});

const freshName = (): string => `test/typescript/${Math.random().toString(36).slice(2)}`;

async function acquire(name: string, options: AcquireOptions = {}): Promise<Lock> {
  const lock = await new Client(servers, { tokenFile }).acquire(name, { waitMs: SOON, ...options });
  locks.push(lock);
  return lock;
}

async function until(condition: () => boolean): Promise<void> {
  for (const limit = performance.now() + SOON; !condition(); ) {
    assert.ok(performance.now() < limit, "it never came");
    await pause(10);
  }
}

/** Makes a request as an operator, and does not wait for its end. */
async function ask(name: string, kind: string, more: object = {}): Promise<void> {
  const server = servers.find((address) => address.startsWith("http")) ?? "";
  const answer = await fetch(`${server}/v1/requests`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${readFileSync(tokenFile, "utf8").trim()}` },
    body: JSON.stringify({ name, kind, reason: "a test", wait_ms: 0, ...more }),
  });
  // 504: it is written, and not answered yet.
  assert.ok(answer.ok || answer.status === 504, await answer.text());
}

test("one at a time", { skip }, async () => {
  const name = freshName();
  const lock = await acquire(name, { owner: "first" });
  await assert.rejects(acquire(name, { waitMs: 0 }), (error) => {
    assert.ok(error instanceof HeldError);
    assert.deepEqual([error.holder, error.token], ["first", lock.token]);
    return true;
  });
  await lock.release({ data: Uint8Array.of(255, 17) });
  const after = await acquire(name);
  assert.deepEqual([after.token, [...(after.data ?? [])]], [lock.token + 1, [255, 17]]);
});

test("heartbeats are confirmed", { skip }, async () => {
  const lock = await acquire(freshName());
  let rises = 0;
  let last = 0;
  await until(() => {
    lock.check();
    const left = lock.remaining();
    rises += Number(left > last);
    last = left;
    return rises > 3;
  });
});

test("waits for the holder", { skip }, async () => {
  const name = freshName();
  const lock = await acquire(name);
  setTimeout(() => void lock.release(), 300);
  assert.equal((await acquire(name)).token, lock.token + 1);
});

test("tells whom it waits for", { skip }, async () => {
  const name = freshName();
  const first = await acquire(name, { owner: "first" });
  const told: unknown[] = [];
  let text = "";
  const transport: Transport = (call) => {
    const { onText } = call;
    return defaultTransport()(onText ? { ...call, onText: (part) => ((text += part), onText(part)) } : call);
  };
  const waiting = new Client(servers, { tokenFile, transport }).acquire(name, {
    waitMs: SOON,
    waiting: (held) => told.push([held.holder, held.token]),
  });
  await until(() => told.length === 1);
  await ask(name, "hand-over", { to: "second" });
  await until(() => first.signal.aborted);
  await first.release();
  const second = await acquire(name, { owner: "second" });
  await until(() => told.length === 2);
  await second.release();
  const lock = await waiting;
  locks.push(lock);
  assert.equal(lock.token, second.token + 1);
  assert.deepEqual(told, [["first", first.token], ["second", second.token]]);
  // It was the stream that said so.
  assert.match(text, /^event: waiting\n.*"second".*^event: granted\n/ms);
});

test("asked", { skip }, async () => {
  const name = freshName();
  const lock = await acquire(name);
  await ask(name, "step-down");
  await until(() => lock.signal.aborted);
  const { reason } = lock.signal;
  assert.ok(reason instanceof AskedError);
  assert.equal(reason.kind, "step-down");
  assert.deepEqual([reason.by, reason.why], ["local", "a test"]);
  lock.check();
  await lock.release();
});

test("revoked", { skip }, async () => {
  const name = freshName();
  const lock = await acquire(name);
  await ask(name, "revoke");
  await until(() => lock.over.aborted);
  assert.throws(() => lock.check(), LostError);
});

test("refused", { skip }, async () => {
  const stranger = new Client(servers, { token: "nobody" });
  const kind = (want: string[]) => (error: unknown) => error instanceof ProblemError && want.includes(error.kind);
  await assert.rejects(stranger.acquire(freshName(), { waitMs: 0 }), kind(["unauthenticated"]));
  await assert.rejects(acquire("tenure/reserved", { waitMs: 0 }), kind(["bad-request", "forbidden"]));
});

/** Starts replicas of a service of its own, and returns their addresses and how each is killed. */
async function replicas(t: TestContext, names: string[]): Promise<{ servers: string[]; kill: (() => void)[] }> {
  const folder = mkdtempSync(join(tmpdir(), "tenure-"));
  const running = names.map((name) => {
    const where = ["--store", `sqlite:${folder}/locks.db`, "--listen", `unix:${folder}/${name}`];
    return spawn(tenured, [...where, "--lease", "5s", "--quiet"], { stdio: "inherit" });
  });
  const ended = running.map((process) => new Promise((resolve) => process.on("exit", resolve)));
  t.after(async () => {
    running.forEach((process) => process.kill("SIGKILL"));
    await Promise.all(ended);
    rmSync(folder, { recursive: true });
  });
  await until(() => names.every((name) => existsSync(join(folder, name))));
  const kill = running.map((process) => () => void process.kill("SIGKILL"));
  return { servers: names.map((name) => `unix:${folder}/${name}`), kill };
}

test("many locks under one session", { skip }, async () => {
  const names = Array.from({ length: 120 }, freshName);
  const client = new Client(servers, { tokenFile });
  const session = await client.session({ owner: "first" });
  const locks = await session.acquireAll(names, { waitMs: SOON });
  const byFirst = (error: unknown): boolean => error instanceof HeldError && error.holder === "first";
  await assert.rejects(acquire(names[3]!, { waitMs: 0 }), byFirst);
  await pause(6000); // longer than a lease
  locks.forEach((lock) => lock.check());
  await assert.rejects(session.acquire(names[3]!, { waitMs: 0 }), HeldError);

  await locks[0]!.release({ data: Uint8Array.of(255, 17) });
  const after = await acquire(names[0]!);
  assert.deepEqual([after.token, [...(after.data ?? [])]], [locks[0]!.token + 1, [255, 17]]);
  await assert.rejects(session.acquireAll([freshName(), names[0]!], { waitMs: 0 }), HeldError);

  await ask(names[1]!, "step-down");
  await until(() => locks[1]!.signal.aborted);
  assert.ok(locks[1]!.signal.reason instanceof AskedError && !locks[2]!.signal.aborted);
  await locks[1]!.release();
  await acquire(names[1]!);

  await session.close();
  locks.forEach((lock) => assert.throws(() => lock.check(), ReleasedError));
  const free = await Promise.all(names.slice(2, 20).map((name) => acquire(name, { waitMs: 0 })));
  assert.deepEqual(free.map((lock) => lock.token), locks.slice(2, 20).map((lock) => lock.token + 1));
});

const alone = skip || (tenured ? false : "no tenured");

test("a session goes on when a replica is killed, and ends when all are", { skip: alone }, async (t) => {
  const { servers, kill } = await replicas(t, ["a", "b"]);
  const session = await new Client(servers, { tokenFile }).session({ waitMs: SOON });
  const lock = await session.acquire("n");
  kill[0]!();
  let rises = 0;
  let last = 0;
  await until(() => {
    lock.check();
    const left = session.remaining();
    rises += Number(left > last);
    last = left;
    return rises > 3;
  });
  const locks = [lock, await session.acquire("m")];
  await (await session.acquire("o")).release();
  kill[1]!();
  await until(() => locks.every((lock) => lock.over.aborted));
  locks.forEach((lock) => assert.throws(() => lock.check(), ExpiredError));
  await assert.rejects(session.close(), ExpiredError);
});

for (const under of ["heartbeats of their own", "a session"]) {
  /** Calls the test with what acquires the locks. */
  const using = async (work: (locks: Client | Session) => Promise<void>): Promise<void> => {
    const client = new Client(servers, { tokenFile });
    await (under === "a session" ? client.withSession(work) : work(client));
  };

  test(`a semaphore, under ${under}`, { skip }, () => using(async (from) => {
    const name = freshName();
    const renders = from.semaphore(name, 2);
    const slots = [await renders.acquire({ waitMs: SOON }), await renders.acquire({ waitMs: SOON })];
    assert.deepEqual(slots.map((slot) => slot.slot).sort(), [0, 1]);
    slots.forEach((slot) => assert.deepEqual([slot.name, slot.slots], [`${name}:slot/${slot.slot}`, 2]));
    await assert.rejects(renders.acquire({ waitMs: 0 }), HeldError);
    const waiting = renders.run((slot) => [slot.name, slot.token], { waitMs: SOON });
    await pause(6000); // longer than a lease
    slots.forEach((slot) => slot.check());
    await slots[0]!.release();
    assert.deepEqual(await waiting, [slots[0]!.name, slots[0]!.token + 1]);
    await slots[1]!.release();
  }));

  test(`readers and writers, under ${under}`, { skip }, () => using(async (from) => {
    const name = freshName();
    const catalog = from.rwlock(name);
    const readers = [await catalog.read({ waitMs: SOON }), await catalog.read({ waitMs: SOON })];
    assert.deepEqual(readers.map((lock) => [lock.fenceToken, lock.lastWriter]), [[1, undefined], [1, undefined]]);
    await assert.rejects(catalog.write({ waitMs: 0 }), HeldError);
    await assert.rejects(catalog.write({ waitMs: 2000 }), HeldError); // a drain that is given up
    const told: string[] = [];
    const writing = catalog.write({ waitMs: SOON, waiting: (held) => told.push(held.holder) });
    await pause(6000); // longer than a lease
    readers.forEach((lock) => lock.check());
    await Promise.all(readers.map((lock) => lock.release()));
    const writer = await writing;
    assert.equal(writer.fenceToken % 2, 0);
    assert.ok(told.length > 0);
    await assert.rejects(catalog.read({ waitMs: 0 }), HeldError);
    writer.check();
    await writer.release({ failed: "disk full" });
    const after = await catalog.read({ waitMs: SOON });
    assert.equal(after.fenceToken, writer.fenceToken + 1);
    assert.equal(after.lastWriter?.end, "failed");
    await after.release();
  }));
}

test("TLS", { skip: process.env["TENURE_TEST_TLS"] ? false : "no service with TLS" }, async () => {
  const server = process.env["TENURE_TEST_TLS"] ?? "";
  const tls = { ca: readFileSync(process.env["TENURE_TEST_CA"] ?? "") };
  const trusting = new Client(server, { tokenFile, tls });
  await trusting.run(freshName(), (lock) => lock.check(), { waitMs: SOON });
  const stranger = new Client(server, { tokenFile });
  // A mistake that stays is told at once, however long the wait may be.
  const told = (server: string, what: RegExp) => (e: unknown) => e instanceof UnavailableError && e.message.includes(`${server}: `) && what.test(e.message);
  await assert.rejects(stranger.acquire(freshName()), told(server, /certificate/));
  const plain = server.replace("https:", "http:");
  await assert.rejects(new Client(plain, { tokenFile }).acquire(freshName()), told(plain, /use https/));
});

test("README", { skip: process.env["TENURE_TEST_README"] ? false : "no service at the README's address" }, async () => {
  const page = readFileSync(join(root, "README.md"), "utf8");
  const blocks = [...page.matchAll(/^```ts\n(.*?)^```/gms)].map(([, code = ""]) => code);
  assert.equal(blocks.length, 4);
  const program = blocks.join("\n");
  const folder = dirname(tokenFile); // where the file "token" is
  mkdirSync(join(folder, "node_modules", "@tenurelock"), { recursive: true });
  symlinkSync(root, join(folder, "node_modules", "@tenurelock", "client"));
  writeFileSync(join(folder, "program.mjs"), program);
  const ran = await promisify(execFile)(process.execPath, ["program.mjs"], { cwd: folder, timeout: 2 * SOON });
  assert.equal(ran.stderr, "");
  const others = "slot \\d of 3\\nreading under token \\d+\\nwriting under token \\d+\\n";
  const first = "(part \\d under token \\d+\\n){3}moving under tokens \\d+ and \\d+\\n";
  assert.match(ran.stdout, new RegExp(`^${first}${others}$`));
});
