// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** What an answer means. An answer that is not certainly the service's own is unknown. @module */

import { AskedError, HeldError, TokenError } from "./errors.js";
import type { Grant } from "./lease.js";

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
}

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
export type Done = { readonly is: "done" };
export type Answer = Granted | Confirmed | Done | Problem | Unknown;
export type Fields = Readonly<Record<string, unknown>>;

const PREFIX = "urn:tenure:problem:";
const LONGEST = 365 * 24 * 3600 * 1000; // in milliseconds; more is no answer of ours
const BASE64 = /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/;

/** An answer that the service does not give. */
class NotOurs extends Error {}

/** Reads the answer to an acquire of the lock. */
export function readAcquire(reply: Reply, name: string): Answer {
  return read(reply, (body) => {
    const { beat, data } = body;
    if (body["name"] !== name || typeof beat !== "string" || beat.split("-").length !== 2) {
      throw new NotOurs("not a grant of this lock");
    }
    if (typeof body["token"] === "number" && body["token"] > Number.MAX_SAFE_INTEGER) {
      // JSON.parse has rounded it.
      const raw = /"token"\s*:\s*(\d+)/.exec(reply.body)?.[1] ?? String(body["token"]);
      const error = new TokenError(`"${name}": token ${raw} is above 2^53 - 1, which a number cannot hold: use a client of another language`);
      return { is: "unknown", why: error.message, error };
    }
    whole(body, "free_after_ms", 0);
    const grant = {
      name,
      token: whole(body, "token", 1, Number.MAX_SAFE_INTEGER),
      beat,
      leaseMs: whole(body, "lease_ms", 1),
      usableMs: body["usable_ms"] === undefined ? 0 : whole(body, "usable_ms", 0),
      heartbeatMs: whole(body, "heartbeat_ms", 1),
    };
    if (data === undefined || data === null) {
      return { is: "granted", grant };
    }
    if (typeof data !== "string" || !BASE64.test(data)) {
      throw new NotOurs("data is not base64");
    }
    return { is: "granted", grant: { ...grant, data: new Uint8Array(Buffer.from(data, "base64")) } };
  });
}

/** Reads the answer to a heartbeat. */
export function readHeartbeat(reply: Reply): Answer {
  return read(reply, (body) => ({
    is: "confirmed",
    usableMs: whole(body, "usable_ms", 0),
    heartbeatMs: whole(body, "heartbeat_ms", 1),
    asked: request(body["asked"]),
  }));
}

/** Reads the answer to a release. */
export function readRelease(reply: Reply): Answer {
  return read(reply, () => ({ is: "done" }));
}

/** Returns the error that says what the body does of the holder of the lock. */
export function heldBy(body: Fields, lock: string): HeldError {
  const { holder, token, free_in_ms: freeIn, reserved, label } = body;
  return new HeldError(
    lock,
    text(holder),
    typeof token === "number" && Number.isSafeInteger(token) ? token : 0,
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
  const body = object(reply.body);
  const type = text(body["type"]);
  if (!type.startsWith(PREFIX) || body["status"] !== reply.status) {
    throw new NotOurs("a problem of a type that the service does not have");
  }
  const wait = /^\d+$/.test(reply.retryAfter ?? "") ? Number(reply.retryAfter) * 1000 : 0;
  const kind = type.slice(PREFIX.length);
  return { is: "problem", kind, status: reply.status, detail: text(body["detail"]), more: body, retryAfterMs: wait };
}

/** Returns the JSON object that a body is. */
export function object(body: string): Fields {
  let value: unknown;
  try {
    value = JSON.parse(body);
  } catch {
    throw new NotOurs("not JSON");
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new NotOurs("not a JSON object");
  }
  return value as Fields;
}

function whole(body: Fields, key: string, least: number, most = LONGEST): number {
  const value = body[key];
  if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > most) {
    throw new NotOurs(`${key} is ${JSON.stringify(value)}`);
  }
  return value;
}

function request(asked: unknown): AskedError | undefined {
  if (asked === undefined || asked === null) {
    return undefined;
  }
  const { kind, by, reason, to, to_label: label } = asked as Fields;
  if (typeof asked !== "object" || typeof kind !== "string") {
    throw new NotOurs("asked is not a request");
  }
  return new AskedError(kind, text(by), text(reason), text(to), text(label));
}
