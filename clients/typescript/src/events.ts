// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** An answer that comes as a stream of events: the holders that are waited for, and at last the result. @module */

import { mediaType, object, type Fields, type Reply } from "./answers.js";

export const EVENT_STREAM = "text/event-stream";

const LONGEST_EVENT = 4 << 20;

/** Says whether an answer of the type is a stream of events. */
export function isStream(contentType: string): boolean {
  return mediaType(contentType) === EVENT_STREAM;
}

/** Reads a stream piece by piece. What is cut off before the end of its event does not count. */
export class Events {
  /** The answer, once it has come. */
  answer: Reply | undefined;
  #rest = ""; // of a line
  #fields = new Map<string, string[]>();

  /** The function is called with what the service says of each holder that is waited for. */
  constructor(readonly waiting: (said: Fields) => void) {}

  /** Takes a piece, and returns whether the answer is there. Throws if it is not the service's. */
  feed(piece: string): boolean {
    const lines = (this.#rest + piece).split("\n");
    this.#rest = lines.pop() ?? "";
    if (this.#rest.length > LONGEST_EVENT) {
      throw new Error(`a line of more than ${LONGEST_EVENT} characters`);
    }
    for (const ended of lines) {
      const line = ended.replace(/\r$/, "");
      if (line) {
        const [name = "", ...values] = line.split(":");
        this.#fields.set(name, [...(this.#fields.get(name) ?? []), values.join(":").replace(/^ /, "")]);
        continue;
      }
      const fields = this.#fields;
      this.#fields = new Map();
      this.#event(fields);
      if (this.answer) {
        return true;
      }
    }
    return false;
  }

  #event(fields: ReadonlyMap<string, string[]>): void {
    const kind = fields.get("event")?.at(-1);
    const body = (fields.get("data") ?? []).join("\n");
    if (kind === "granted") {
      this.answer = { status: 200, contentType: "application/json", body };
    } else if (kind === "waiting") {
      this.waiting(object(body));
    } else if (kind === "problem") {
      const { status } = object(body);
      const retry = fields.get("retry")?.at(-1) ?? "";
      this.answer = {
        status: typeof status === "number" ? status : 0,
        contentType: "application/problem+json",
        body,
        retryAfter: /^\d+$/.test(retry) ? String(Math.ceil(Number(retry) / 1000)) : "", // seconds, as the header
      };
    }
  }
}
