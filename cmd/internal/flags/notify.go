// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"net"
	"os"
	"strings"
	"time"
)

// Managed reports whether a service manager wants to know how this process is.
func Managed() bool { return os.Getenv(managerVariable) != "" }

// managerVariable is the environment variable with the socket of the manager.
const managerVariable = "NOTIFY_SOCKET"

// managerPatience bounds the waiting for a manager that does not read.
const managerPatience = time.Second

// Notify sends the state of this service to its manager: "READY=1", "STOPPING=1". See
// sd_notify(3). Without a manager (NOTIFY_SOCKET) it does nothing. It waits a second at
// most.
func Notify(state string) error {
	path := os.Getenv(managerVariable)
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
	if err := c.SetWriteDeadline(time.Now().Add(managerPatience)); err != nil {
		return err
	}
	_, err = c.Write([]byte(state))
	return err
}
