// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// Redis is the variable that names the URL of a Redis.
const Redis = "TENURE_TEST_REDIS"

// StartRedis starts a server that the test has for itself, and waits until it answers. Settings are names and values
// of its configuration, such as "--appendonly", "yes".
func StartRedis(t testing.TB, settings ...string) *Engine {
	t.Helper()
	port, data := FreePort(t), t.TempDir()
	server, err := launcher.Redis(data, port, settings...)
	e := start(t, "", server, err)
	e.Addr, e.Data = fmt.Sprintf("127.0.0.1:%d", port), data
	e.URL = "redis://" + e.Addr
	return await(e)[0]
}

// Restore ends the server at once, has a file of its folder hold other data, and starts it again.
func (e *Engine) Restore(file string, data []byte) {
	e.t.Helper()
	e.Kill()
	if err := os.WriteFile(filepath.Join(e.Data, file), data, 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.Start()
	e.Await()
}
