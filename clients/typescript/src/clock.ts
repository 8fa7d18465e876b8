// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

/** A clock that counts the time in which the machine was suspended. @module */

/** Tells elapsed time, suspends included, in milliseconds since an instant of its own. */
export type Clock = () => number;

/** A reading of a monotonic clock and of the wall clock, in milliseconds. */
export type Reading = readonly [mono: number, wall: number];

/** By how much two readings may differ without a cause, in milliseconds. */
const TOLERANCE = 2;

/**
 * Returns the greater of what the monotonic clock and the wall clock say has passed. Node has no
 * monotonic clock that counts suspends.
 *
 * The wall clock's lead over the monotonic clock is compared with the smallest lead seen since the
 * last step: what it grew by counts, so a suspend after a step back counts in full. A wall clock
 * that is set forward counts too, and ends a lease early: it looks like a suspend.
 */
export function greaterClock(read: () => Reading = readBoth): Clock {
  const [origin, wall] = read();
  let lead = wall - origin;
  let more = 0;
  return () => {
    const [mono, wall] = read();
    const now = wall - mono;
    if (now - lead > TOLERANCE) {
      more += now - lead;
      lead = now;
    }
    lead = Math.min(lead, now);
    return mono - origin + more;
  };
}

/** Reads both clocks as nearly at once as can be: a pause between the two would count. */
function readBoth(): Reading {
  let before = performance.now();
  for (let tries = 0; ; tries++) {
    const wall = Date.now();
    const after = performance.now();
    if (after - before < 1 || tries === 2) {
      return [after, wall];
    }
    before = after;
  }
}
