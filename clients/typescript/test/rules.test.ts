// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** The tables of testdata, which all clients share: what may be believed, and when. @module */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { heldBy, readAcquire, readHeartbeat, readDone } from "../src/answers.js";
import { checkText } from "../src/acquire.js";
import { Client } from "../src/client.js";
import { greaterClock } from "../src/clock.js";
import { AskedError } from "../src/errors.js";
import { Events } from "../src/events.js";
import { Lease, randomPart, type Heartbeat, type Release } from "../src/lease.js";
import { Attachment, SessionLease } from "../src/sessionlease.js";

interface Step {
  at: number;
  do: string;
  is?: string | null;
  ms?: number | null;
  after?: string | null;
  next?: string;
  first_sent?: number;
  sent?: number;
  none?: boolean;
  usable_ms?: number;
  heartbeat_ms?: number;
  asked?: { kind: string; by: string; reason: string } | null;
  kind?: string | null;
  with?: string;
  lock?: string; // of a session: the step is about this lock
  token?: number;
  answered?: string[];
  requests?: { id: string; name: string; token: number; kind: string; by: string; reason: string }[];
}

function table(name: string): any {
  return JSON.parse(readFileSync(new URL(`../../../testdata/${name}`, import.meta.url), "utf8"));
}

/** Returns the beat that the tables call B0, B1, and so on. */
const beat = (name: string): string => `aaaaaaaaaaaaa-${name.slice(1).padStart(13, "0")}`;

/** Plays one scenario. */
class Player {
  readonly lease: Lease;
  readonly sent = new Map<string, Heartbeat>();
  release: Release | undefined;
  made = 0;

  constructor(rules: any, more: any) {
    const { token, beat: first, lease_ms: leaseMs, heartbeat_ms: heartbeatMs, usable_ms: usableMs = 0 } = { ...rules.grant, ...more };
    const grant = { name: "n", token, beat: beat(first), leaseMs, usableMs, heartbeatMs };
    this.lease = new Lease(grant, rules.stop_timeout_ms, () => String(++this.made).padStart(13, "0"));
  }

  play(step: Step): void {
    const now = step.at;
    const sent = (): Heartbeat => this.sent.get(beat(step.next ?? ""))!;
    switch (step.do) {
      case "granted":
        this.lease.granted(step.sent!, now);
        break;
      case "send": {
        const got = this.lease.send(now);
        const want = { after: beat(step.after ?? ""), next: beat(step.next ?? ""), firstSent: step.first_sent };
        assert.deepEqual(got, step.none ? undefined : want);
        if (got) {
          this.sent.set(got.next, got);
        }
        break;
      }
      case "confirm": {
        const { kind, by, reason } = step.asked ?? { kind: "", by: "", reason: "" };
        const asked = step.asked ? new AskedError(kind, by, reason) : undefined;
        this.lease.confirm(sent(), step.usable_ms!, step.heartbeat_ms!, asked, now);
        break;
      }
      case "refuse":
        this.lease.refuse(sent(), "b", now);
        break;
      case "check":
        assert.equal(this.lease.state(now), step.is);
        break;
      case "remaining":
        assert.equal(this.lease.remaining(now), step.ms);
        break;
      case "due":
        assert.equal(this.lease.due(now) ?? null, step.ms);
        break;
      case "asked":
        assert.equal(this.lease.asked?.kind ?? null, step.kind);
        break;
      case "release":
        this.release = this.lease.release(now);
        break;
      case "call":
        assert.equal(this.release!.call(now) ?? null, step.after ? beat(step.after) : null);
        break;
      case "answered":
        ({ ok: () => this.release!.applied(), lost: () => this.release!.refused(), unknown: () => this.release!.unknown() })[
          step.with as "ok" | "lost" | "unknown"
        ]();
        break;
      case "outcome":
        assert.equal(this.release!.outcome ?? null, step.is);
        break;
      default:
        assert.fail(`no step ${step.do}`);
    }
  }
}

test("rules", async (t) => {
  const rules = table("rules.json");
  assert.ok(rules.scenarios.length > 20);
  for (const { rule, grant, steps } of rules.scenarios) {
    await t.test(rule, () => {
      const player = new Player(rules, grant);
      for (const step of steps) {
        player.play(step);
      }
    });
  }
});

/** Plays one scenario of a session. Its beats are S0 and so on, those of lock a are A0 and A1. */
class SessionPlayer {
  readonly session: SessionLease;
  readonly sent = new Map<string, Heartbeat>();
  readonly locks = new Map<string, Attachment>();
  readonly releases = new Map<string, Release>();
  made = 0;

  constructor(readonly rules: any) {
    const { beat, lease_ms: leaseMs, heartbeat_ms: heartbeatMs } = rules.opening;
    const opened = { session: "s", beat: this.beat(beat), leaseMs, heartbeatMs };
    this.session = new SessionLease(opened, 0, () => String(++this.made).padStart(13, "0"));
  }

  beat(name: string): string {
    return `${name[0]!.repeat(13)}-${name.slice(1).padStart(13, "0")}`;
  }

  play(step: Step): void {
    const { at: now, lock: name = "" } = step;
    const lock = this.locks.get(name)!;
    const of = name ? lock : this.session;
    const want = { after: this.beat(step.after ?? "S"), next: this.beat(step.next ?? "S") };
    const released = this.releases.get(name);
    const asked = step.asked ? new AskedError(step.asked.kind, step.asked.by, step.asked.reason) : undefined;
    switch (step.do) {
      case "send": {
        const got = this.session.send(now);
        assert.deepEqual(got, step.none ? undefined : { ...want, firstSent: step.first_sent });
        if (got) {
          assert.deepEqual(this.session.answered(got), step.answered);
          this.sent.set(got.next, got);
        }
        break;
      }
      case "confirm": {
        this.session.confirm(this.sent.get(want.next)!, step.usable_ms!, step.heartbeat_ms!, undefined, now);
        const requests = (step.requests ?? []).map((one) => {
          return { ...one, asked: new AskedError(one.kind, one.by, one.reason) };
        });
        this.session.requested(requests, now);
        break;
      }
      case "refuse":
        this.session.refuse(this.sent.get(want.next)!, "b", now);
        break;
      case "grant": {
        const { lease_ms: leaseMs, heartbeat_ms: heartbeatMs } = this.rules.grant;
        const first = this.beat(`${name.toUpperCase()}0`);
        const grant = { name, token: step.token!, beat: first, leaseMs, heartbeatMs, usableMs: step.usable_ms ?? 0 };
        const granted = new Attachment(grant, this.session, this.rules.stop_timeout_ms, () => "1".padStart(13, "0"));
        granted.granted(step.sent!, now);
        this.session.add(granted);
        this.locks.set(name, granted);
        break;
      }
      case "attach":
        assert.deepEqual(lock.send(now), step.none ? undefined : { ...want, firstSent: step.first_sent });
        break;
      case "attached":
        lock.confirm(asked, now);
        break;
      case "lost":
        lock.refuse(now);
        break;
      case "check":
        assert.equal(of.state(now), step.is);
        break;
      case "remaining":
        assert.equal(of.remaining(now), step.ms);
        break;
      case "due":
        assert.equal(this.session.due(now) ?? null, step.ms);
        break;
      case "asked":
        assert.equal(lock.asked?.kind ?? null, step.kind);
        break;
      case "overdue":
        assert.equal(lock.overdue(now), step.is);
        break;
      case "close":
      case "release":
        this.releases.set(name, of.release(now));
        break;
      case "call": {
        const call = released!.call(now) ?? null;
        if (name && call) {
          const { after, next } = lock.call();
          assert.deepEqual({ after, next }, want);
        } else {
          assert.equal(call, step.after ? want.after : null);
        }
        break;
      }
      case "answered":
        ({ ok: () => released!.applied(), lost: () => released!.refused(), unknown: () => released!.unknown() })[
          step.with as "ok" | "lost" | "unknown"
        ]();
        break;
      case "outcome":
        assert.equal(released!.outcome ?? null, step.is);
        break;
      default:
        assert.fail(`no step ${step.do}`);
    }
  }
}

test("session rules", async (t) => {
  const rules = table("session_rules.json");
  assert.ok(rules.scenarios.length > 20);
  for (const { rule, steps } of rules.scenarios) {
    await t.test(rule, () => {
      const player = new SessionPlayer(rules);
      for (const step of steps) {
        player.play(step);
      }
    });
  }
});

test("clock", async (t) => {
  for (const { about, readings } of table("clock.json").scenarios) {
    await t.test(about, () => {
      let at = readings[0];
      const clock = greaterClock(() => [at[0], at[1]]);
      for (at of readings.slice(1)) {
        assert.equal(clock(), at[2]);
      }
    });
  }
});

test("answers", async (t) => {
  const read: Record<string, typeof readHeartbeat> = {
    acquire: (reply) => readAcquire(reply, "n"),
    heartbeat: readHeartbeat,
    release: readDone,
  };
  for (const [number, given] of table("answers.json").answers.entries()) {
    await t.test(`${number}: ${given.call} ${given.status}`, () => {
      const got = read[given.call]!({ status: given.status, contentType: given.type, body: given.body });
      const is = ["problem", "unknown"].includes(got.is) ? got.is : "ok";
      assert.deepEqual([is, got.is === "problem" ? got.kind : undefined], [given.is, given.kind]);
    });
  }
});

/** Returns what a stream says that comes in such pieces. */
function said(pieces: string[]): string[] {
  const says: string[] = [];
  const events = new Events((body) => {
    const { holder, token } = heldBy(body, "n");
    says.push(`waiting ${holder} ${token}`);
  });
  try {
    pieces.some((piece) => events.feed(piece));
  } catch {
    return [...says, "unknown"];
  }
  if (!events.answer) {
    return says;
  }
  const got = readAcquire(events.answer, "n");
  if (got.is === "granted") {
    return [...says, `granted ${got.grant.token}`];
  }
  return [...says, got.is === "problem" ? `problem ${got.kind} ${got.retryAfterMs / 1000}` : got.is];
}

test("events", async (t) => {
  const { streams } = table("events.json");
  assert.ok(streams.length > 15);
  for (const { about, stream, said: want } of streams) {
    await t.test(about, () => {
      for (const size of [1, 7, stream.length + 1]) {
        const pieces = Array.from({ length: Math.ceil(stream.length / size) }, (_, i) => stream.slice(i * size, (i + 1) * size));
        assert.deepEqual(said(pieces), want, `in pieces of ${size}`);
      }
    });
  }
});

test("random part", () => {
  const parts = new Set(Array.from({ length: 100 }, randomPart));
  assert.equal(parts.size, 100);
  for (const part of parts) {
    assert.match(part, /^[0-9A-Za-z]{13}$/);
  }
});

test("names: text", async () => {
  const names = table("names.json");
  for (const text of names.whole) {
    checkText("name", text);
  }
  const client = new Client("http://127.0.0.1:1");
  for (const text of names.halves) {
    for (const [name, options] of [
      [text, {}],
      ["n", { owner: text }],
      ["n", { label: text }],
    ]) {
      await assert.rejects(client.acquire(name, { ...options, waitMs: 0 }), /half of a character/);
    }
  }
});
