// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** Calls over real sockets, to servers that behave well and badly. @module */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer as createHTTPServer } from "node:http";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import test, { after, type TestContext } from "node:test";

import { Client, ExpiredError, type Reply } from "../src/index.js";
import { readAcquire } from "../src/answers.js";
import { Events } from "../src/events.js";
import { addresses, Caller, Credentials, defaultTransport } from "../src/transport.js";
import { dropped, Service } from "./fake.js";

const SOON = 30_000;
const OK = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

const folder = mkdtempSync(join(tmpdir(), "tenure-"));
after(() => rmSync(folder, { recursive: true }));

/** Serves one answer a connection, by a function, and returns the address and what was asked. */
async function script(t: TestContext, answer: (to: Socket) => void, unix = ""): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    let got = "";
    socket.on("error", () => undefined);
    socket.on("data", (chunk) => {
      got += chunk.toString();
      const length = /content-length: (\d+)/i.exec(got);
      const [, body] = got.split("\r\n\r\n");
      if (body !== undefined && body.length >= Number(length?.[1])) {
        asked.push(got);
        answer(socket);
      }
    });
  });
  await new Promise<void>((resolve) => (unix ? server.listen(unix, resolve) : server.listen(0, "127.0.0.1", resolve)));
  t.after(() => {
    sockets.forEach((socket) => socket.destroy());
    server.close();
  });
  return { url: unix ? `unix:${unix}` : `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

function caller(url: string): Caller {
  return new Caller(addresses(url), new Credentials("secret"), defaultTransport());
}

const STREAM = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
const GRANT = 'event: granted\ndata: {"token": 8}\n\n';

for (const unix of [false, true]) {
  const where = unix ? "over a unix socket" : "by fetch";

  test(`a call ${where}`, async (t) => {
    const server = await script(t, (to) => to.end(OK), unix ? join(folder, "call") : "");
    const reply: Reply = await caller(server.url).call("/v1/release", { name: "n" }, SOON);
    assert.deepEqual([reply.status, reply.contentType, reply.body], [200, "application/json", "{}"]);
    const [head = "", body = ""] = server.asked[0]!.split("\r\n\r\n");
    assert.match(head, /^POST \/v1\/release HTTP\/1.1\r\n/);
    assert.match(head, /\r\nauthorization: Bearer secret/i);
    assert.match(head, /\r\ncontent-type: application\/json/i);
    assert.match(head, unix ? /\r\nhost: localhost/i : /\r\nhost: 127.0.0.1/i);
    assert.deepEqual(JSON.parse(body), { name: "n" });
  });

  test(`the limit holds for the whole answer ${where}`, async (t) => {
    const dribble = (to: Socket): void => {
      let at = 0;
      const timer = setInterval(() => (to.destroyed ? clearInterval(timer) : to.write(OK[at++ % OK.length]!)), 50);
    };
    const server = await script(t, dribble, unix ? join(folder, "slow") : "");
    await assert.rejects(caller(server.url).call("/v1/release", {}, 300), /300 ms|abort/);
  });

  test(`a stream is told as it comes ${where}`, async (t) => {
    let socket: Socket | undefined;
    const waits = (to: Socket): void => void (socket = to).write(`${STREAM}event: waiting\ndata: {"holder": "a"}\n\n`);
    const server = await script(t, waits, unix ? join(folder, "stream") : "");
    const told: unknown[] = [];
    const events = new Events((said) => {
      told.push(said);
      socket?.write(GRANT); // and the stream does not end, as a proxy may have it
    });
    const reply = await caller(server.url).call("/v1/acquire", {}, SOON, events);
    assert.deepEqual(told, [{ holder: "a" }]);
    assert.deepEqual([reply.status, reply.contentType, reply.body], [200, "application/json", '{"token": 8}']);
    assert.match(server.asked[0]!, /\r\naccept: text\/event-stream, application\/json,/i);
    await new Promise((resolve) => (socket?.destroyed ? resolve(undefined) : socket?.on("close", resolve)));
  });

  test(`a server that does not stream ${where}`, async (t) => {
    const server = await script(t, (to) => to.end(OK), unix ? join(folder, "plain") : "");
    const reply = await caller(server.url).call("/v1/acquire", {}, SOON, new Events(() => assert.fail()));
    assert.equal(reply.body, "{}");
  });

  test(`cut streams are no answers ${where}`, async (t) => {
    for (const [number, cut] of [STREAM, STREAM + GRANT.slice(0, -1)].entries()) {
      const server = await script(t, (to) => to.end(cut), unix ? join(folder, `cutstream${number}`) : "");
      const reply = await caller(server.url).call("/v1/acquire", {}, SOON, new Events(() => assert.fail()));
      assert.equal(readAcquire(reply, "n").is, "unknown");
    }
    const wrong = `${STREAM}event: waiting\ndata: {\n\n${GRANT}`;
    const server = await script(t, (to) => to.write(wrong), unix ? join(folder, "wrongstream") : "");
    await assert.rejects(caller(server.url).call("/v1/acquire", {}, SOON, new Events(() => assert.fail())), /JSON/);
  });

  test(`cut answers are no answers ${where}`, async (t) => {
    for (const [number, cut] of ["", "HTTP/1.1 200 OK\r\n", "nonsense\r\n\r\n", OK.slice(0, -1)].entries()) {
      const server = await script(t, (to) => to.end(cut), unix ? join(folder, `cut${number}`) : "");
      await assert.rejects(caller(server.url).call("/v1/release", {}, SOON), cut);
    }
  });
}

test("redirects are not followed", async (t) => {
  const moved = "HTTP/1.1 307 Moved\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n";
  const server = await script(t, (to) => to.end(moved));
  assert.equal((await caller(server.url).call("/v1/release", {}, SOON)).status, 307);
  assert.equal(server.asked.length, 1);
});

test("abort", async (t) => {
  const server = await script(t, () => calls.abort());
  const calls = caller(server.url);
  await assert.rejects(calls.call("/v1/acquire", {}, SOON), /abort/);
  await assert.rejects(calls.call("/v1/acquire", {}, SOON), /abort/);
});

test("token file", () => {
  const file = join(folder, "token");
  writeFileSync(file, "first\n");
  const credentials = new Credentials(undefined, file);
  assert.deepEqual(credentials.header(), { authorization: "Bearer first" });
  writeFileSync(file, "second\n");
  assert.deepEqual(credentials.header(), { authorization: "Bearer second" });
  rmSync(file);
  assert.deepEqual(credentials.header(), { authorization: "Bearer second" });
});

/** Serves a service in memory over HTTP. */
async function serve(t: TestContext, service: Service): Promise<string> {
  const server = createHTTPServer((request, response) => {
    let body = "";
    request.on("data", (chunk) => (body += chunk));
    request.on("end", () => {
      const call = { server: "", path: request.url ?? "", headers: {}, body, signal: new AbortController().signal };
      service.transport(call).then(
        (reply) => response.writeHead(reply.status, { "content-type": reply.contentType }).end(reply.body),
        () => request.socket.destroy(),
      );
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test("one of two servers is down", async (t) => {
  const service = new Service();
  service.heartbeatMs = 10;
  const client = new Client(["http://127.0.0.1:9", await serve(t, service)], { token: "t" });
  await client.run("n", async (lock) => {
    while (service.bodies("/v1/heartbeat").length < 5) {
      lock.check();
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  });
  assert.equal(service.holder, undefined);
});

test("all servers go", async (t) => {
  const service = new Service();
  service.heartbeatMs = 10;
  service.usableMs = 300;
  const lock = await new Client(await serve(t, service), { token: "t" }).acquire("n");
  service.always["/v1/heartbeat"] = dropped;
  await new Promise((resolve) => lock.over.addEventListener("abort", resolve));
  assert.throws(() => lock.check(), ExpiredError);
  await assert.rejects(lock.release(), ExpiredError);
});
