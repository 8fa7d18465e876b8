// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"strings"
	"syscall"
)

// tcpUserTimeout is TCP_USER_TIMEOUT, see tcp(7): for how many milliseconds data may stay
// unacknowledged.
const tcpUserTimeout = 18

// limitUnacknowledged ends a connection whose peer does not acknowledge data. A slow peer
// that is alive does.
func limitUnacknowledged(network, _ string, c syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return c.Control(func(fd uintptr) {
		// Without it the connection ends later.
		_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, tcpUserTimeout, int((keepAlive * (keepAliveCount + 1)).Milliseconds()))
	})
}
