// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// home keeps the settings of the machine away from a test.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, entry := range os.Environ() {
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			if err := os.Unsetenv(name); err != nil { // t.Setenv brings it back
				t.Fatal(err)
			}
		}
	}
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	return dir
}

// roles is a service of the machine that hands out credentials, and counts who
// asks.
func roles(t *testing.T) *atomic.Int64 {
	t.Helper()
	asked := new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		http.NotFound(w, nil)
	}))
	t.Cleanup(server.Close)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server.URL)
	return asked
}

func connected(t *testing.T, url string) (id string, region string, err error) {
	t.Helper()
	client, err := mustParse(t, url).written.clone().tableClient(t.Context())
	if err != nil {
		return "", "", err
	}
	keys, err := client.Options().Credentials.Retrieve(t.Context())
	return keys.AccessKeyID, client.Options().Region, err
}

// With an endpoint on this machine nobody else is asked for credentials; with
// another one, everybody is.
func TestCredentials(t *testing.T) {
	dir := home(t)
	asked := roles(t)
	const local = "dynamodb://locks?region=local&endpoint=http://127.0.0.1:1"
	check := func(what, url, want string) {
		t.Helper()
		id, _, err := connected(t, url)
		if err != nil || id != want || asked.Load() != 0 {
			t.Errorf("%s: credentials %q, %v, %d questions to the machine's role; want %q and none", what, id, err,
				asked.Load(), want)
		}
	}
	check("placeholders", local, "test")
	t.Setenv("AWS_DEFAULTS_MODE", "auto")
	check("placeholders, with settings that depend on the machine", local, "test")
	t.Setenv("AWS_DEFAULTS_MODE", "")
	check("placeholders by name", "dynamodb://locks?region=local&endpoint=http://localhost:1", "test")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://[::1]:1")
	check("placeholders, endpoint of the environment", "dynamodb://locks?region=local", "test")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", "")

	for _, url := range []string{
		"dynamodb://locks?region=local",
		"dynamodb://locks?region=local&endpoint=http://192.0.2.1",
	} {
		asked.Store(0)
		_, _, err := connected(t, url)
		const want = `dynamodb table "locks": there are no credentials for AWS; set AWS_PROFILE`
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s without credentials: %v", url, err)
		}
		if asked.Load() == 0 {
			t.Errorf("%s: the machine's role was not asked for", url)
		}
	}
	asked.Store(0)

	const profiles = `
[default]
aws_access_key_id = of-default
aws_secret_access_key = x
[other]
region = us-west-2
aws_access_key_id = of-other
aws_secret_access_key = x
`
	if err := os.WriteFile(filepath.Join(dir, "credentials"), []byte(profiles), 0o600); err != nil {
		t.Fatal(err)
	}
	const remote = "dynamodb://locks?region=eu-central-1"
	check("profile by default", local, "of-default")
	check("profile by default, remote", remote, "of-default")
	check("profile of the URL", local+"&profile=other", "of-other")
	check("profile of the URL, remote", remote+"&profile=other", "of-other")
	_, _, err := connected(t, local+"&profile=nix")
	if err == nil || !strings.Contains(err.Error(), `profile "nix" does not exist`) {
		t.Errorf("unknown profile: %v", err)
	}
	if _, region, err := connected(t, "dynamodb://locks?profile=other"); err != nil || region != "us-west-2" {
		t.Errorf("region of the profile: %q, %v", region, err)
	}
	t.Setenv("AWS_PROFILE", "other")
	check("profile of the environment", local, "of-other")
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", "of-environment")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	check("environment", local, "of-environment")
	check("environment, remote", remote, "of-environment")
	check("profile of the URL before the environment", local+"&profile=other", "of-other")
	check("profile of the URL before the environment, remote", remote+"&profile=other", "of-other")
	_, _, err = connected(t, "dynamodb://locks")
	if err == nil || !strings.Contains(err.Error(), "no region is named; write region= in the URL, or set AWS_REGION") {
		t.Errorf("no region: %v", err)
	}
}

// A process that is started with the URL of an open store comes to the same
// table, whatever its environment says.
func TestURLOfOpenStore(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	home(t)
	t.Setenv("AWS_REGION", "local")
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", e.URL)
	l := mustParse(t, "dynamodb://tenure-no-such-table")
	const none = `there is no such table; check its name and the region, or create it with "tenure table create"`
	if _, err := l.Open(); err == nil || !strings.Contains(err.Error(), none) {
		t.Errorf("Open: %v", err)
	}
	if want := "dynamodb://tenure-no-such-table?region=local&endpoint=" + e.URL; l.URL() != want {
		t.Errorf("URL %q, want %q", l.URL(), want)
	}

	// An endpoint with a password stays in the environment: no URL has one.
	t.Setenv("AWS_ENDPOINT_URL_DYNAMODB", strings.Replace(e.URL, "://", "://u:s3cr3tpw@", 1))
	l = mustParse(t, "dynamodb://tenure-no-such-table")
	if _, err := l.Open(); err == nil || strings.Contains(err.Error(), "s3cr3tpw") {
		t.Errorf("Open: %v", err)
	}
	if want := "dynamodb://tenure-no-such-table?region=local"; l.URL() != want {
		t.Errorf("URL %q, want %q", l.URL(), want)
	}
}
