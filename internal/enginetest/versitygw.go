// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// What a client needs of a server of S3's protocol that a test has for itself.
const (
	S3Key    = "test" // as the command takes it for an endpoint on this machine
	S3Secret = "test"
	S3Region = "us-east-1"
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
	program := Program(t, "versitygw", "versitygw-*/versitygw")
	folder := t.TempDir()
	for _, bucket := range buckets {
		if err := os.Mkdir(filepath.Join(folder, bucket), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var all []*Versitygw
	for range gateways {
		address := fmt.Sprintf("127.0.0.1:%d", FreePort(t))
		args := []string{
			program, "--port", address, "--access", S3Key, "--secret", S3Secret, "--region", S3Region,
			"--health", "/health", "--keep-alive", "--quiet", "posix", folder,
		}
		g := &Versitygw{URL: "http://" + address}
		g.Engine = NewEngine(t, args, nil, func() error {
			_, err := answerOf(g.URL + "/health")
			return err
		})
		g.Start()
		all = append(all, g)
	}
	for _, g := range all {
		g.Await()
	}
	return all
}
