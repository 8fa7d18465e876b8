// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** HTTP calls to one server of a list, each with a limit for the whole of it. @module */

import { setMaxListeners } from "node:events";
import { readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import type { IncomingMessage, RequestOptions } from "node:http";
import type { RequestOptions as SecureOptions } from "node:https";

import { mediaType, type Reply } from "./answers.js";
import { EVENT_STREAM, isStream, type Events } from "./events.js";

/** One HTTP call. The signal ends it, with whatever has come of its answer. */
export interface Call {
  /** `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`. */
  readonly server: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
  /**
   * Takes an answer of the type text/event-stream as it comes, and returns true once it needs no more.
   * The reply has no body then. A transport may leave it alone, and return all of the stream as the body.
   */
  readonly onText?: (text: string) => boolean;
}

/** Sends a call once and returns its answer. It rejects without an answer. */
export type Transport = (call: Call) => Promise<Reply>;

/** Certificates for https: see node:tls. With `cert` and `key` the client shows a certificate. */
export interface TlsOptions {
  readonly ca?: string | Uint8Array;
  readonly cert?: string | Uint8Array;
  readonly key?: string | Uint8Array;
}

const LONGEST_ANSWER = 4 << 20;

/** Returns the transport: fetch; node:http and node:https for unix sockets and certificates. */
export function defaultTransport(tls?: TlsOptions): Transport {
  return (call) => (tls || call.server.startsWith("unix:") ? nodeCall(call, tls) : fetchCall(call));
}

/** Checks the addresses, and returns them without a slash at their end. */
export function addresses(servers: string | readonly string[]): string[] {
  const listed = typeof servers === "string" ? [servers] : [...servers];
  if (listed.length === 0) {
    throw new TypeError("no server: give at least one address, such as http://127.0.0.1:8368");
  }
  return listed.map((server) => {
    const url = URL.canParse(server) ? new URL(server) : undefined;
    const web = url && /^https?:$/.test(url.protocol) && url.host && !url.search && !url.hash && !url.username;
    if (!web && !/^unix:\/[^/]/.test(server)) {
      throw new TypeError(`server ${JSON.stringify(server)}: want http://HOST:PORT, https://HOST:PORT or unix:/PATH`);
    }
    return server.replace(/\/+$/, "");
  });
}

/** The bearer token: a text, or a file that is read again for each call. */
export class Credentials {
  #token = "";
  readonly #file: string | undefined;

  constructor(token?: string, file?: string) {
    if (token !== undefined && file !== undefined) {
      throw new TypeError("token and tokenFile: give one of them");
    }
    this.#file = file;
    if (token !== undefined) {
      this.#token = fit(token, "token");
    } else if (file !== undefined) {
      this.#token = readToken(file);
    }
  }

  /** Returns what a call shows; nothing without a token, as with a client certificate. */
  header(): Record<string, string> {
    if (this.#file !== undefined) {
      try {
        this.#token = readToken(this.#file);
      } catch {
        // It may be written just now: the token stays as it was.
      }
    }
    return this.#token ? { authorization: `Bearer ${this.#token}` } : {};
  }
}

/** A call that a server did not answer. */
export class CallError extends Error {
  constructor(
    message: string,
    /** It answers no call until its address or a certificate is fixed. */
    readonly permanent: boolean,
  ) {
    super(message);
  }
}

/** Growing pauses with jitter, from 50 ms to a second. */
export class Backoff {
  #pause = 50;

  next(): number {
    const pause = this.#pause;
    this.#pause = Math.min(1000, pause * 2);
    return pause * (0.5 + Math.random() / 2);
  }
}

/** Sends the calls of one user to one server after the other. They may be concurrent. */
export class Caller {
  #at: number;
  readonly #ended = new AbortController();

  constructor(
    readonly servers: readonly string[],
    readonly credentials: Credentials,
    readonly transport: Transport,
  ) {
    this.#at = Math.floor(Math.random() * servers.length);
    setMaxListeners(0, this.#ended.signal); // each call that is under way listens
  }

  /**
   * Sends the call, and returns its answer within the limit, in milliseconds; else it rejects. With
   * events it asks for a stream of them.
   */
  async call(path: string, body: unknown, limit: number, events?: Events): Promise<Reply> {
    const ended = this.#ended.signal;
    ended.throwIfAborted();
    const over = new AbortController();
    const end = (): void => over.abort(ended.reason);
    const timer = setTimeout(() => over.abort(new Error(`no answer within ${Math.round(limit)} ms`)), limit);
    ended.addEventListener("abort", end, { once: true });
    const server = this.servers[this.#at] ?? "";
    try {
      const reply = await this.transport({
        server,
        path,
        headers: {
          "content-type": "application/json",
          accept: `${events ? `${EVENT_STREAM}, ` : ""}application/json, application/problem+json`,
          ...this.credentials.header(),
        },
        body: JSON.stringify(body),
        signal: over.signal,
        ...(events && { onText: (text) => events.feed(text) }),
      });
      if (reply.status === 400 && mediaType(reply.contentType) !== "application/problem+json" && /HTTPS/.test(reply.body)) {
        throw new CallError(`use https; the server says: ${reply.body.slice(0, 100).trim()}`, true);
      }
      if (events && !events.answer && isStream(reply.contentType)) {
        events.feed(reply.body);
      }
      return events?.answer ?? reply;
    } catch (error) {
      throw new CallError(`${server}: ${reasonOf(error)}`, isPermanent(error));
    } finally {
      clearTimeout(timer);
      ended.removeEventListener("abort", end);
    }
  }

  /** Has the next call go to another server. */
  move(): void {
    this.#at = (this.#at + 1) % this.servers.length;
  }

  /** Ends the call that is under way, and every later one. */
  abort(): void {
    this.#ended.abort(new Error("aborted"));
  }
}

/** Says in words why a call failed. */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) {
    return String(error);
  }
  // fetch hides why it failed behind "fetch failed".
  return error.cause instanceof Error ? `${error.message}: ${error.cause.message || error.cause.name}` : error.message;
}

/** Says whether a certificate is refused, here or there, or the port speaks no TLS. */
function isPermanent(error: unknown): boolean {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  if (!(cause instanceof Error) || cause instanceof CallError) {
    return cause instanceof CallError && cause.permanent;
  }
  const code = (cause as NodeJS.ErrnoException).code ?? "";
  return (
    /^(CERT_|UNABLE_TO_(GET|VERIFY|DECRYPT|DECODE)|DEPTH_ZERO|SELF_SIGNED|ERR_TLS_CERT|INVALID_CA|HOSTNAME_MISMATCH)/.test(code) ||
    /wrong version number|packet length too long|alert (bad certificate|unknown ca|certificate)/i.test(cause.message)
  );
}

async function fetchCall(call: Call): Promise<Reply> {
  const { path, headers, body, signal, onText } = call;
  const answer = await fetch(call.server + path, { method: "POST", headers, body, signal, redirect: "manual" });
  const header = (name: string): string | null => answer.headers.get(name);
  const content = new Content(isStream(header("content-type") ?? "") ? onText : undefined);
  for await (const chunk of answer.body ?? []) {
    if (content.take(chunk as Uint8Array)) {
      break; // which ends the connection, unless this was all
    }
  }
  return reply(answer.status, header, content);
}

function nodeCall(call: Call, tls: TlsOptions | undefined): Promise<Reply> {
  const headers = { ...call.headers, "content-length": String(Buffer.byteLength(call.body)) };
  const shared: RequestOptions = { method: "POST", headers, signal: call.signal };
  return new Promise((resolve, reject) => {
    const answered = (answer: IncomingMessage): void => {
      const header = (name: string): string | null => answer.headers[name]?.toString() ?? null;
      const content = new Content(isStream(header("content-type") ?? "") ? call.onText : undefined);
      const done = (): void => resolve(reply(answer.statusCode ?? 0, header, content));
      answer.on("data", (chunk: Buffer) => {
        try {
          if (content.take(chunk)) {
            done();
            answer.destroy();
          }
        } catch (error) {
          answer.destroy(error as Error);
        }
      });
      answer.on("error", reject);
      answer.on("end", done);
    };
    const sent = call.server.startsWith("unix:")
      ? httpRequest({ ...shared, socketPath: call.server.slice("unix:".length), path: call.path, host: "localhost" }, answered)
      : call.server.startsWith("https:")
        ? httpsRequest(call.server + call.path, { ...shared, ...(tls as SecureOptions) }, answered)
        : httpRequest(call.server + call.path, shared, answered);
    sent.on("error", reject);
    sent.end(call.body);
  });
}

/** What an answer says, as it comes: kept, or handed on. */
class Content {
  text = ""; // that is kept
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #length = 0;

  constructor(readonly onText: ((text: string) => boolean) | undefined) {}

  /** Takes a chunk, and returns whether no more is needed. */
  take(chunk: Uint8Array): boolean {
    this.#length += chunk.length;
    if (this.#length > LONGEST_ANSWER) {
      throw new Error(`an answer of more than ${LONGEST_ANSWER} bytes`);
    }
    const text = this.#decoder.decode(chunk, { stream: true });
    if (this.onText) {
      return this.onText(text);
    }
    this.text += text;
    return false;
  }
}

function reply(status: number, header: (name: string) => string | null, content: Content): Reply {
  const body = content.text;
  return { status, contentType: header("content-type") ?? "", body, retryAfter: header("retry-after") ?? "" };
}

function readToken(file: string): string {
  return fit(readFileSync(file, "utf8").trim(), file);
}

function fit(token: string, where: string): string {
  if (!/^[!-~]+$/.test(token)) {
    throw new TypeError(`${where}: a token is one word of printable ASCII`);
  }
  return token;
}
