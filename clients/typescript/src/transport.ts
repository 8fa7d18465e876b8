// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** HTTP calls to one server of a list, each with a limit for the whole of it. @module */

import { readFileSync } from "node:fs";
import { request as httpRequest } from "node:http";
import { request as httpsRequest } from "node:https";
import type { IncomingMessage, RequestOptions } from "node:http";

import type { Reply } from "./answers.js";

/** One HTTP call. The signal ends it, with whatever has come of its answer. */
export interface Call {
  /** `http://HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`. */
  readonly server: string;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly signal: AbortSignal;
}

/** Sends a call once and returns its answer. It rejects if there is none. */
export type Transport = (call: Call) => Promise<Reply>;

/** Certificates for https: see node:tls. With `cert` and `key` the client shows a certificate. */
export interface TlsOptions {
  readonly ca?: string | Buffer;
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
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
    throw new TypeError("no server: give at least one address, as http://127.0.0.1:8368");
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

/** The bearer token: a text, or a file that is read anew for each call. */
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

/** Growing pauses with jitter, from 50 ms to a second. */
export class Backoff {
  #pause = 50;

  next(): number {
    const pause = this.#pause;
    this.#pause = Math.min(1000, pause * 2);
    return pause * (0.5 + Math.random() / 2);
  }
}

/** Sends the calls of one user to one server after the other. */
export class Caller {
  #at: number;
  readonly #ended = new AbortController();

  constructor(
    readonly servers: readonly string[],
    readonly credentials: Credentials,
    readonly transport: Transport,
  ) {
    this.#at = Math.floor(Math.random() * servers.length);
  }

  /** Sends the call, and returns its answer within the limit, in milliseconds; else it rejects. */
  async call(path: string, body: unknown, limit: number): Promise<Reply> {
    const ended = this.#ended.signal;
    ended.throwIfAborted();
    const over = new AbortController();
    const end = (): void => over.abort(ended.reason);
    const timer = setTimeout(() => over.abort(new Error(`no answer within ${Math.round(limit)} ms`)), limit);
    ended.addEventListener("abort", end, { once: true });
    const server = this.servers[this.#at] ?? "";
    try {
      return await this.transport({
        server,
        path,
        headers: {
          "content-type": "application/json",
          accept: "application/json, application/problem+json",
          ...this.credentials.header(),
        },
        body: JSON.stringify(body),
        signal: over.signal,
      });
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

async function fetchCall(call: Call): Promise<Reply> {
  const { path, headers, body, signal } = call;
  const answer = await fetch(call.server + path, { method: "POST", headers, body, signal, redirect: "manual" });
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of answer.body ?? []) {
    chunks.push(chunk as Uint8Array);
    length += (chunk as Uint8Array).length;
    tooLong(length);
  }
  return reply(answer.status, (name) => answer.headers.get(name), chunks);
}

function nodeCall(call: Call, tls: TlsOptions | undefined): Promise<Reply> {
  const headers = { ...call.headers, "content-length": String(Buffer.byteLength(call.body)) };
  const shared: RequestOptions = { method: "POST", headers, signal: call.signal };
  return new Promise((resolve, reject) => {
    const answered = (answer: IncomingMessage): void => {
      const chunks: Uint8Array[] = [];
      let length = 0;
      answer.on("data", (chunk: Buffer) => {
        chunks.push(chunk);
        length += chunk.length;
        try {
          tooLong(length);
        } catch (error) {
          answer.destroy(error as Error);
        }
      });
      answer.on("error", reject);
      answer.on("end", () => {
        const header = (name: string): string | null => answer.headers[name]?.toString() ?? null;
        resolve(reply(answer.statusCode ?? 0, header, chunks));
      });
    };
    const sent = call.server.startsWith("unix:")
      ? httpRequest({ ...shared, socketPath: call.server.slice("unix:".length), path: call.path, host: "localhost" }, answered)
      : call.server.startsWith("https:")
        ? httpsRequest(call.server + call.path, { ...shared, ...tls }, answered)
        : httpRequest(call.server + call.path, shared, answered);
    sent.on("error", reject);
    sent.end(call.body);
  });
}

function reply(status: number, header: (name: string) => string | null, chunks: Uint8Array[]): Reply {
  const body = Buffer.concat(chunks).toString("utf8");
  return { status, contentType: header("content-type") ?? "", body, retryAfter: header("retry-after") ?? "" };
}

function tooLong(length: number): void {
  if (length > LONGEST_ANSWER) {
    throw new Error(`an answer of more than ${LONGEST_ANSWER} bytes`);
  }
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
