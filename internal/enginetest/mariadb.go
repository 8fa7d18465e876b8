// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// MySQL is the variable that names the URL of a MySQL or MariaDB, mysql://USER@HOST:PORT, whose user may do everything
// and has no password.
const MySQL = "TENURE_TEST_MYSQL"

// StartMariaDB starts a server that the test has for itself, and waits until it answers. Its user root may do
// everything, and has no password. Settings are arguments, such as "--log-bin". A power loss would lose data, but the
// death of the server loses nothing.
func StartMariaDB(t testing.TB, settings ...string) *Engine {
	t.Helper()
	port, data := FreePort(t), t.TempDir()
	need(t, launcher.InitMariaDB(data))
	server, err := launcher.MariaDB(data, port, settings...)
	e := start(t, "", server, err)
	e.Addr, e.Data = fmt.Sprintf("127.0.0.1:%d", port), data
	e.URL = "mysql://root@" + e.Addr
	return await(e)[0]
}
