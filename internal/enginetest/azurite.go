// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"net"
	"testing"
	"time"
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
	program := Program(t, "azurite", "azurite-*/node_modules/azurite/dist/src/blob/main.js")
	port := FreePort(t)
	address := fmt.Sprintf("127.0.0.1:%d", port)
	a := &Azurite{URL: "http://" + address + "/" + AzureAccount}
	a.Engine = NewEngine(t, []string{
		"node", program, "--blobHost", "127.0.0.1", "--blobPort", fmt.Sprint(port),
		"--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent",
	}, nil, func() error {
		conn, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	})
	a.Start()
	a.Await()
	return a
}
