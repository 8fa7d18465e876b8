// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** One command, as the Go package peers/wire has it. */
export interface Request {
  readonly id: number;
  readonly cmd: string;
  readonly endpoint?: string;
  readonly secret?: string;
  readonly owner?: string;
  readonly notice?: boolean;
  readonly name?: string;
  readonly waitMs?: number;
  readonly tryOnly?: boolean;
  readonly durationMs?: number;
  readonly holdMs?: number;
  readonly pauseMs?: number;
  readonly drainMs?: number;
  readonly log?: string;
  readonly resource?: string;
  readonly effectMs?: number;
  readonly hesitateMs?: number;
}

/** The machine's CLOCK_MONOTONIC in nanoseconds. */
export function monotonic(): number {
  return Number(process.hrtime.bigint());
}
