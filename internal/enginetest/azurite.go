// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// Azurite is an emulator of Azure Blob Storage, which keeps blobs in memory.
type Azurite struct {
	*Engine
	// URL is where clients find the account.
	URL string
}

// StartAzurite starts one, without a container, and waits until it answers.
func StartAzurite(t testing.TB) *Azurite {
	t.Helper()
	port := FreePort(t)
	server, err := launcher.Azurite(port)
	need(t, err)
	a := &Azurite{Engine: newEngine(t, server), URL: fmt.Sprintf("http://127.0.0.1:%d/%s", port, AzureAccount)}
	a.Start()
	a.Await()
	return a
}
