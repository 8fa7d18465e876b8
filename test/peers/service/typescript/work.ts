// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

import { closeSync, openSync, writeSync } from "node:fs";
import { Agent, request as send } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

import { HeldError, LostError, TenureError, type Client, type Lock } from "../../../../clients/typescript/src/index.js";
import type { Peer } from "./peer.js";
import { monotonic, type Request } from "./request.js";

const CHECK_MS = 1;
const ERROR_PAUSE_MS = 50;

export function holds(lock: Lock): boolean {
  try {
    lock.check();
    return true;
  } catch (error) {
    if (error instanceof TenureError) {
      return false;
    }
    throw error;
  }
}

/** What the holder of a lock writes to. It notes each effect with the instant before the check that allowed it. */
class Resource {
  readonly #agent = new Agent({ keepAlive: true });

  constructor(
    readonly url: string,
    readonly owner: string,
  ) {}

  effect(lock: Lock, checked: number): Promise<void> {
    const headers = {
      "Tenure-Lock": lock.name,
      "Tenure-Token": String(lock.token),
      "Effect-Owner": this.owner,
      "Effect-Checked": String(checked),
    };
    return new Promise((resolve) => {
      const done = (): void => resolve();
      const sent = send(this.url + "/effect", { method: "POST", agent: this.#agent, headers, timeout: 2000 }, (answer) =>
        answer.on("end", done).on("error", done).resume(),
      );
      sent.on("error", done).on("timeout", () => sent.destroy()).end();
    });
  }
}

/** The work command: acquire, hold and release until the time is up, with a log of the holds. */
export class Work {
  readonly #log: number;
  readonly #resource: Resource | undefined;
  readonly #counts = { released: 0, errors: 0, lastError: "" };

  constructor(
    readonly peer: Peer,
    readonly client: Client,
    readonly owner: string,
    readonly request: Request,
    readonly notice: boolean,
  ) {
    this.#log = openSync(request.log ?? "", "a", 0o600);
    this.#resource = request.resource ? new Resource(request.resource, owner) : undefined;
  }

  async run(): Promise<object> {
    const deadline = monotonic() + (this.request.durationMs ?? 0) * 1e6;
    while (monotonic() < deadline && this.peer.ending === undefined) {
      try {
        await this.#round();
      } catch (error) {
        if (!(error instanceof TenureError)) {
          throw error;
        }
        if (!(error instanceof HeldError)) {
          this.#counts.errors++;
          this.#counts.lastError = `${error.name}: ${error.message}`;
          await sleep(ERROR_PAUSE_MS);
        }
      }
      await sleep(this.request.pauseMs ?? 0);
    }
    closeSync(this.#log);
    return this.#counts;
  }

  async #round(): Promise<void> {
    const { waitMs } = this.request;
    const lock = await this.client.acquire(this.request.name ?? "", {
      owner: this.owner,
      ...(waitMs === undefined ? {} : { waitMs }),
    });
    const begin = monotonic();
    if (!holds(lock)) {
      return; // it came too late to be claimed for a single instant
    }
    this.#write("begin", begin, lock.token);
    if (this.notice) {
      lock.over.addEventListener("abort", () => {
        if (lock.over.reason instanceof LostError) {
          this.#write("notice", monotonic());
        }
      });
    }
    const drainMs = await this.#hold(lock, begin);
    if (drainMs !== undefined) {
      await sleep(drainMs);
      this.#write("end", monotonic());
    }
    try {
      await lock.release();
      this.#counts.released++;
    } catch (error) {
      if (!(error instanceof LostError)) {
        throw error;
      }
    }
  }

  /** Works under the lock. Returns how long the work goes on if it was told to end. */
  async #hold(lock: Lock, begin: number): Promise<number | undefined> {
    const until = begin + (this.request.holdMs ?? 0) * 1e6;
    const every = (this.request.effectMs ?? 0) * 1e6;
    let [last, effect, no] = [begin, begin, 0];
    let drainMs: number | undefined;
    while (last < until && !lock.signal.aborted && drainMs === undefined) {
      // The instant first, then the check: what is logged was not expired.
      const now = monotonic();
      if (!holds(lock)) {
        no = monotonic();
        break;
      }
      const before = last;
      last = now;
      if (this.#resource && now >= effect) {
        await sleep(this.request.hesitateMs ?? 0);
        await this.#resource.effect(lock, now);
        effect = now + every;
      }
      if (this.peer.hurries(before, now)) {
        continue;
      }
      drainMs = this.peer.ending;
      await sleep(CHECK_MS);
    }
    if (no === 0 && !holds(lock)) {
      no = monotonic();
    }
    if (this.notice && no > 0) {
      this.#write("no", no);
    }
    if (drainMs === undefined) {
      this.#write("end", last);
    }
    return drainMs;
  }

  #write(what: string, ns: number, token?: number): void {
    writeSync(this.#log, `${what} ${this.owner} ${ns}${token === undefined ? "" : ` ${token}`}\n`);
  }
}
