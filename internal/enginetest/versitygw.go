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

// What a client needs of a server of S3's protocol that a test has for itself.
const (
	S3Key    = launcher.S3Key
	S3Secret = launcher.S3Secret
	S3Region = launcher.S3Region
)

// Versitygw is a gateway that keeps objects as files.
type Versitygw struct {
	*Engine
	// URL is where clients find it.
	URL string
}

// StartVersitygw starts so many gateways over one folder, with a bucket for each name, and
// waits until they answer.
func StartVersitygw(t testing.TB, gateways int, buckets ...string) []*Versitygw {
	t.Helper()
	folder := bucketFolders(t, buckets)
	var all []*Versitygw
	for range gateways {
		port := FreePort(t)
		server, err := launcher.Versitygw(folder, port)
		need(t, err)
		g := &Versitygw{Engine: newEngine(t, server), URL: fmt.Sprintf("http://127.0.0.1:%d", port)}
		g.Start()
		all = append(all, g)
	}
	for _, g := range all {
		g.Await()
	}
	return all
}

// bucketFolders returns a folder with one for each bucket.
func bucketFolders(t testing.TB, buckets []string) string {
	t.Helper()
	folder := t.TempDir()
	for _, bucket := range buckets {
		if err := os.Mkdir(filepath.Join(folder, bucket), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
