// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"net"
	"os"
	"strings"
)

// notify tells the manager of this service how it is: "READY=1", "STOPPING=1". See
// sd_notify(3). Without a manager that wants to know (NOTIFY_SOCKET) it does nothing.
func notify(state string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if name, ok := strings.CutPrefix(path, "@"); ok {
		path = "\x00" + name // of the abstract namespace
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_, err = c.Write([]byte(state))
	return err
}
