// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** What an answer means. An answer that is not certainly the service's own is unknown. @module */

import { AskedError, HeldError, TokenError } from "./errors.js";
import type { Grant, LastWriter, Opened } from "./lease.js";

/** An HTTP answer, whole. */
export interface Reply {
  readonly status: number;
  readonly contentType: string;
  readonly body: string;
  readonly retryAfter?: string;
}

/** A heartbeat was confirmed. */
export interface Confirmed {
  readonly is: "confirmed";
  readonly usableMs: number;
  readonly heartbeatMs: number;
  readonly asked: AskedError | undefined;
  /** Of a session: what holders of its locks are asked. */
  readonly requests?: readonly SessionRequest[];
}

/** What the holder of a lock under a session is asked. */
export interface SessionRequest {
  readonly id: string;
  readonly name: string;
  readonly token: number;
  readonly asked: AskedError;
}

/** What became of one lock of a call about several: carried out, or a problem. */
export type Result = Problem | { readonly is: "done"; readonly asked: AskedError | undefined };

/** The service refused the call, or could not carry it out. */
export interface Problem {
  readonly is: "problem";
  readonly kind: string;
  readonly status: number;
  readonly detail: string;
  readonly more: Fields;
  readonly retryAfterMs: number;
}

/** The outcome of the call is not known. */
export interface Unknown {
  readonly is: "unknown";
  readonly why: string;
  /** This server answers no call until its address or a certificate is fixed. */
  readonly permanent?: boolean;
  /** No other call brings a better answer: the acquire ends with it. */
  readonly error?: TokenError;
}

export type Granted = { readonly is: "granted"; readonly grant: Grant };
export type SessionOpened = { readonly is: "opened"; readonly opened: Opened };
export type Results = { readonly is: "results"; readonly results: readonly Result[] };
export type Done = { readonly is: "done" };
export type Answer = Granted | SessionOpened | Confirmed | Results | Done | Problem | Unknown;
export type Fields = Readonly<Record<string, unknown>>;

const PREFIX = "urn:tenure:problem:";
const LONGEST = 365 * 24 * 3600 * 1000; // in milliseconds; more is no answer of ours
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** What else than a plain lock an acquire may want; the grant is of a lock with a derived name then. */
export type Kind = "slots" | "shared" | "exclusive";

const DERIVED: Readonly<Record<Kind, RegExp>> = {
  slots: /^:slot\/(\d+)$/,
  shared: /^:read\/\d+$/,
  exclusive: /^:gate$/,
};

/** An answer that the service does not give. */
class NotOurs extends Error {}

/** Reads the answer to an acquire of the lock. */
export function readAcquire(reply: Reply, name: string, kind?: Kind): Answer {
  return read(reply, (body) => {
    const given = text(body["name"]);
    const part = kind && given.startsWith(name) ? DERIVED[kind].exec(given.slice(name.length)) : null;
    if (kind ? !part : given !== name) {
      throw new NotOurs("not a grant of this lock");
    }
    for (const key of ["token", "fence_token"]) {
      const token = body[key];
      if (typeof token === "number" && token > Number.MAX_SAFE_INTEGER) {
        // JSON.parse has rounded it.
        const raw = new RegExp(`"${key}"\\s*:\\s*(\\d+)`).exec(reply.body)?.[1] ?? String(token);
        const why = `"${given}": token ${raw} is above 2^53 - 1, which a number cannot hold`;
        const error = new TokenError(`${why}: use a client of another language`);
        return { is: "unknown", why: error.message, error };
      }
    }
    whole(body, "free_after_ms", 0);
    const data = bytes(body, "data");
    const grant: Grant = {
      name: given,
      token: whole(body, "token", 1, Number.MAX_SAFE_INTEGER),
      beat: beatOf(body),
      leaseMs: whole(body, "lease_ms", 1),
      usableMs: body["usable_ms"] === undefined ? 0 : whole(body, "usable_ms", 0),
      heartbeatMs: whole(body, "heartbeat_ms", 1),
      ...(data && { data }),
      ...(kind === "slots" && { slot: whole(body, "slot", 0), slots: whole(body, "slots", 1) }),
      ...(kind && kind !== "slots" && ofReaderOrWriter(body)),
    };
    if (part?.[1] !== undefined && Number(part[1]) !== grant.slot) {
      throw new NotOurs(`the slot of ${JSON.stringify(given)} is ${grant.slot}`);
    }
    return { is: "granted", grant };
  });
}

/** Returns what the grant of a reader or of a writer has besides. */
function ofReaderOrWriter(body: Fields): Partial<Grant> {
  const unwritten = bytes(body, "unwritten");
  const drain = body["drain"] ?? false;
  if (typeof drain !== "boolean") {
    throw new NotOurs(`drain is ${JSON.stringify(drain)}`);
  }
  return {
    fenceToken: whole(body, "fence_token", 1, Number.MAX_SAFE_INTEGER),
    drain,
    ...(unwritten && { unwritten }),
    ...(body["last_writer"] !== undefined && { lastWriter: lastWriter(body["last_writer"]) }),
  };
}

function lastWriter(value: unknown): LastWriter {
  const { owner, token, end } = fields(value, "last_writer");
  if (typeof owner !== "string" || typeof token !== "number" || typeof end !== "string") {
    throw new NotOurs(`last_writer is ${JSON.stringify(value)}`);
  }
  return { owner, token: safe(token), end };
}

/** Reads the answer to the opening of a session. */
export function readOpen(reply: Reply): Answer {
  return read(reply, (body) => {
    const session = text(body["session"]);
    if (!/^[0-9A-Za-z-]{1,64}$/.test(session)) {
      throw new NotOurs("not a session");
    }
    const [leaseMs, heartbeatMs] = [whole(body, "lease_ms", 1), whole(body, "heartbeat_ms", 1)];
    return { is: "opened", opened: { session, beat: beatOf(body), leaseMs, heartbeatMs } };
  });
}

/** Reads the answer to a heartbeat of a session. */
export function readSessionHeartbeat(reply: Reply): Answer {
  return read(reply, (body) => ({
    is: "confirmed",
    usableMs: whole(body, "usable_ms", 0),
    heartbeatMs: whole(body, "heartbeat_ms", 1),
    asked: undefined,
    requests: list(body, "requests").map((one) => {
      const request = fields(one, "a request");
      const { id, name, token } = request;
      const asked = requestOf(request);
      if (typeof id !== "string" || typeof name !== "string" || typeof token !== "number" || !asked) {
        throw new NotOurs("requests has what is no request");
      }
      return { id, name, token, asked };
    }),
  }));
}

/** Reads the answer to a call about these locks: the result for each, in the same order. */
export function readResults(reply: Reply, names: readonly string[]): Answer {
  return read(reply, (body) => {
    const given = list(body, "results").map((one) => fields(one, "a result"));
    if (given.length !== names.length || given.some(({ name }, i) => name !== names[i])) {
      throw new NotOurs("not the results for these locks");
    }
    const results = given.map(({ problem, asked }): Result => {
      return problem === undefined ? { is: "done", asked: requestOf(asked) } : problemOf(fields(problem, "problem"), 0);
    });
    return { is: "results", results };
  });
}

/** Says whether the same call is sent again after the problem. */
export function repeats({ status }: Problem): boolean {
  return status >= 500 || status === 401 || status === 403 || status === 429;
}

/** Reads the answer to a heartbeat. */
export function readHeartbeat(reply: Reply): Answer {
  return read(reply, (body) => ({
    is: "confirmed",
    usableMs: whole(body, "usable_ms", 0),
    heartbeatMs: whole(body, "heartbeat_ms", 1),
    asked: requestOf(body["asked"]),
  }));
}

/** Reads an answer without content: to a release, the closing of a session, a drain. */
export function readDone(reply: Reply): Answer {
  return read(reply, () => ({ is: "done" }));
}

/** Returns the error that says what the body does of the holder of the lock. */
export function heldBy(body: Fields, lock: string): HeldError {
  const { holder, token, free_in_ms: freeIn, reserved, label } = body;
  return new HeldError(
    lock,
    text(holder),
    safe(token),
    typeof freeIn === "number" ? freeIn : 0,
    reserved === true,
    text(label),
  );
}

/** Returns an answer for people. */
export function describe(answer: Answer): string {
  switch (answer.is) {
    case "problem":
      return `${answer.kind} (${answer.status}): ${answer.detail}`;
    case "unknown":
      return answer.why;
    default:
      return answer.is;
  }
}

/** Returns a field that is text, else nothing. */
export function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}

/** Returns the media type of a header Content-Type, without its parameters. */
export function mediaType(contentType: string): string {
  return (contentType.split(";")[0] ?? "").trim().toLowerCase();
}

function read(reply: Reply, ok: (body: Fields) => Answer): Answer {
  const media = mediaType(reply.contentType);
  try {
    if (reply.status === 200 && media === "application/json") {
      return ok(object(reply.body));
    }
    if (media === "application/problem+json") {
      return problem(reply);
    }
  } catch (error) {
    if (!(error instanceof NotOurs)) {
      throw error;
    }
    return { is: "unknown", why: `status ${reply.status}: ${error.message}` };
  }
  const why = `status ${reply.status} of type ${JSON.stringify(media)}, which is not an answer of the service`;
  return { is: "unknown", why };
}

function problem(reply: Reply): Problem {
  const wait = /^\d+$/.test(reply.retryAfter ?? "") ? Number(reply.retryAfter) * 1000 : 0;
  const problem = problemOf(object(reply.body), wait);
  if (problem.status !== reply.status) {
    throw new NotOurs("a problem of another status");
  }
  return problem;
}

function problemOf(body: Fields, retryAfterMs: number): Problem {
  const { type, status, detail } = body;
  if (!text(type).startsWith(PREFIX) || typeof status !== "number") {
    throw new NotOurs("a problem of a type that the service does not have");
  }
  const kind = text(type).slice(PREFIX.length);
  return { is: "problem", kind, status, detail: text(detail), more: body, retryAfterMs };
}

/** Returns the JSON object that a body is. */
export function object(body: string): Fields {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    throw new NotOurs("not JSON");
  }
  return fields(value, "the answer");
}

function fields(value: unknown, what: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new NotOurs(`${what} is not a JSON object`);
  }
  return value as Fields;
}

function list(body: Fields, key: string): readonly unknown[] {
  const value = body[key];
  if (!Array.isArray(value)) {
    throw new NotOurs(`${key} is not a list`);
  }
  return value;
}

function beatOf(body: Fields): string {
  const { beat } = body;
  if (typeof beat !== "string" || beat.split("-").length !== 2) {
    throw new NotOurs("no beat");
  }
  return beat;
}

function bytes(body: Fields, key: string): Uint8Array | undefined {
  const value = body[key];
  if (value === undefined || value === null) {
    return undefined;
  }
  if (typeof value !== "string" || !BASE64.test(value)) {
    throw new NotOurs(`${key} is not base64`);
  }
  return new Uint8Array(Buffer.from(value, "base64"));
}

/** Returns a token for people; 0 if it is above 2^53 - 1, and so was rounded. */
function safe(token: unknown): number {
  return typeof token === "number" && Number.isSafeInteger(token) ? token : 0;
}

function whole(body: Fields, key: string, least: number, most = LONGEST): number {
  const value = body[key];
  if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most) {
    throw new NotOurs(`${key} is ${JSON.stringify(value)}`);
  }
  return value;
}

function requestOf(asked: unknown): AskedError | undefined {
  if (asked === undefined || asked === null) {
    return undefined;
  }
  const { kind, by, reason, to, to_label: label } = asked as Fields;
  if (typeof asked !== "object" || typeof kind !== "string") {
    throw new NotOurs("asked is not a request");
  }
  return new AskedError(kind, text(by), text(reason), text(to), text(label));
}
