// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import "time"

// Elapsed returns how much time has passed for certain on the client's clock,
// since an origin of its own: [Clock].Contender. It counts suspends, and no step
// of the wall clock. The difference of two readings is never more than the time
// between the two calls, but for the rate error of the machine's clock
// ([Options.MaxClockDrift]). Readings of two clients cannot be compared.
//
// Use it for what must not happen too early: to wait until something has stood for
// long enough, or to add up how long something has been going on. For what must not
// happen too late there is [Lease.Check]. Elapsed may be called concurrently, and
// after Close.
func (c *Client) Elapsed() time.Duration { return c.clock.Contender() }
