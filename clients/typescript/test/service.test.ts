// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** Against a real service: clients/test starts it, and says in the environment where it is. @module */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import test, { afterEach } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import {
  AskedError,
  Client,
  HeldError,
  LostError,
  ProblemError,
  UnavailableError,
  type AcquireOptions,
  type Lock,
  type Transport,
} from "../src/index.js";
import { defaultTransport } from "../src/transport.js";

const SOON = 60_000;
const servers = (process.env["TENURE_TEST_SERVERS"] ?? "").split(",");
const tokenFile = process.env["TENURE_TEST_TOKEN_FILE"] ?? "";
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
  const program = /^```ts\n(.*?)^```/ms.exec(readFileSync(join(root, "README.md"), "utf8"))?.[1];
  assert.ok(program);
  const folder = dirname(tokenFile); // where the file "token" is
  mkdirSync(join(folder, "node_modules", "@tenurelock"), { recursive: true });
  symlinkSync(root, join(folder, "node_modules", "@tenurelock", "client"));
  writeFileSync(join(folder, "program.mjs"), program);
  const ran = await promisify(execFile)(process.execPath, ["program.mjs"], { cwd: folder, timeout: 2 * SOON });
  assert.equal(ran.stderr, "");
  assert.match(ran.stdout, /^(part \d under token \d+\n){3}$/);
});
