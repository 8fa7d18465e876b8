// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"crypto/rand"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/cmd/internal/scripts"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// bucketAt is the URL of a store in a bucket of a server that a test has for itself.
func bucketAt(url, bucket, prefix string) string {
	return "s3://" + bucket + "/" + prefix + "?region=" + enginetest.S3Region + "&endpoint=" + url + "&path_style=1"
}

// s3Setup sets what the scripts of testdata/s3 find. BROKEN is a server that ignores the
// conditions of writes, and OTHER one whose bucket is another one.
func s3Setup(t *testing.T, env *testscript.Env, store string) {
	b := enginetest.NewBucket(t)
	b.Break(enginetest.IgnoresConditions)
	env.Setenv("BROKEN", bucketAt(b.URL, b.Name, "locks"))
	env.Setenv("OTHER", bucketAt(b.URL, "no-such-bucket", "locks"))
	env.Setenv("STORE", store)
	env.Setenv("AWS_ACCESS_KEY_ID", enginetest.S3Key)
	env.Setenv("AWS_SECRET_ACCESS_KEY", enginetest.S3Secret)
}

// TestS3Scripts runs the scripts of testdata/s3 on a server of the tests' own.
func TestS3Scripts(t *testing.T) {
	sound := enginetest.NewBucket(t)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/s3",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			s3Setup(t, env, bucketAt(sound.URL, sound.Name, rand.Text()))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exits": scripts.Exits},
	})
}

// TestVersitygwScripts runs them, and those of testdata that are for any store, on a gateway.
func TestVersitygwScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: make buckets runs it")
	}
	gateway := enginetest.StartVersitygw(t, 1, "locks")[0]
	runStoreScripts(t, "s3", nil, func(env *testscript.Env) error {
		s3Setup(t, env, bucketAt(gateway.URL, "locks", rand.Text()))
		return nil
	})
}
