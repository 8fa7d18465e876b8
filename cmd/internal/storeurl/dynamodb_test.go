// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package storeurl_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestParseDynamoDB(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"dynamodb://locks", ""},
		{"dynamodb://locks?", "dynamodb://locks"},
		{"dynamodb://my.Locks_1-2?region=eu-central-1", ""},
		{"dynamodb://locks?endpoint=HTTP://LocalHost:8000/&region=local", "dynamodb://locks?region=local&endpoint=http://localhost:8000"},
		{"dynamodb://locks?endpoint=https%3A%2F%2Fvpce-1.example%2Fpart", "dynamodb://locks?endpoint=https://vpce-1.example/part"},
		{"dynamodb://locks?endpoint=http://[::1]:8000", "dynamodb://locks?endpoint=http://%5B::1%5D:8000"},
		{"dynamodb://locks?partition-key=key&dialect=java&shared=false&eventual-replicas=false&ttl=false", "dynamodb://locks"},
		{
			"dynamodb://locks?ttl=true&eventual-replicas=true&sort-value=a%20b%26c%23&sort-key=sk&partition-key=id&shared=true&dialect=dynamolock&profile=two words",
			"dynamodb://locks?profile=two+words&dialect=dynamolock&shared=true&partition-key=id&sort-key=sk&sort-value=a+b%26c%23&eventual-replicas=true&ttl=true",
		},
	} {
		if tc.want == "" {
			tc.want = tc.url
		}
		l, err := storeurl.Parse(tc.url)
		if err != nil || l.URL() != tc.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", tc.url, l.URL(), err, tc.want)
			continue
		}
		again, err := storeurl.Parse(l.URL())
		d, ok := storeurl.DynamoDBOf(l)
		if e, _ := storeurl.DynamoDBOf(again); err != nil || !ok || !reflect.DeepEqual(d, e) {
			t.Errorf("Parse(%q) = %+v, %v; want %+v", l.URL(), e, err, d)
		}
		if l.File() != "" || l.Private() {
			t.Errorf("%q is a file %q, private %v", tc.url, l.File(), l.Private())
		}
	}
	l, err := storeurl.Parse("dynamodb://locks?shared=true&dialect=dynamolock&sort-key=sk&sort-value=a%20b%26c%23&profile=p&region=r&endpoint=http://h&partition-key=id&eventual-replicas=true&ttl=true")
	want := storeurl.DynamoDB{
		Table: "locks", Account: storeurl.Account{Region: "r", Profile: "p", Endpoint: "http://h"},
		Options: dynamostore.Options{
			PartitionKey: "id", SortKey: "sk", SortValue: "a b&c#", Dialect: dynamostore.Dynamolock, SharedTable: true, EventualReplicas: true, TimeToLive: true,
		},
	}
	if got, _ := storeurl.DynamoDBOf(l); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("it is %+v, %v; want %+v", got, err, want)
	}
}

func TestParseDynamoDBRefuses(t *testing.T) {
	for _, tc := range []struct{ url, want string }{
		{"dynamodb:", "the table is missing: write dynamodb://TABLE?region=REGION"},
		{"dynamodb://", "the table is missing"},
		{"dynamodb:locks", "the table is missing"},
		{"dynamodb://?region=r", "the table is missing"},
		{"dynamodb://AKIA:secret@locks?region=r", "a user or a password stands in it: credentials come from AWS_PROFILE"},
		{"dynamodb://secret@locks", "a user or a password"},
		{"dynamodb://locks/", "a path follows the table's name"},
		{"dynamodb://locks/part?region=r", "a path follows the table's name"},
		{"dynamodb://localhost/locks", "a host or a port stands where the table's name belongs: write dynamodb://TABLE?region=REGION&endpoint=http://HOST:PORT"},
		{"dynamodb://127.0.0.1:8000", "a host or a port"},
		{"dynamodb://arn:aws-cn:dynamodb:cn-north-1:111122223333:table/locks", "write dynamodb://locks?region=cn-north-1"},
		{"dynamodb://lo", `table name "lo": it must have 3 to 255 letters`},
		{"dynamodb://my%20locks", `table name "my%20locks"`},
		{"dynamodb://" + strings.Repeat("n", 256), "it must have 3 to 255 letters"},
		{"dynamodb://locks#x", "write %23"},
		{"dynamodb://locks?sort-key=s&sort-value=a#b", "write %23"},
		{"dynamodb://locks?region=%zz", "cannot be read"},
		{"dynamodb://locks?region=a;profile=b", "cannot be read"},
		{"dynamodb://locks?Region=r", `parameter "Region" is unknown: the parameters are region, endpoint, profile`},
		{"dynamodb://locks?secret-key=secret", `parameter "secret-key" is unknown`},
		{"dynamodb://locks?region=a&region=a", "region= is there 2 times: write it once"},
		{"dynamodb://locks?region=", "region= has no value: write one, or leave it out"},
		{"dynamodb://locks?region", "region= has no value"},
		{"dynamodb://locks?region=x.evil.example/", "region=x.evil.example/ is no name of a region"},
		{"dynamodb://locks?endpoint=127.0.0.1:8000", "endpoint= is no address of a server: write endpoint=http://HOST:PORT"},
		{"dynamodb://locks?endpoint=localhost:8000", "endpoint= is no address of a server"},
		{"dynamodb://locks?endpoint=ftp://h", "endpoint= is no address of a server"},
		{"dynamodb://locks?endpoint=http://", "endpoint= is no address of a server"},
		{"dynamodb://locks?endpoint=http://u:secret@h", "endpoint= has a user or a password"},
		{"dynamodb://locks?endpoint=http://h?secret", `endpoint= ends with a "?"`},
		{"dynamodb://locks?dialect=go", "dialect= is neither java nor dynamolock"},
		{"dynamodb://locks?shared=yes", "shared= is neither true nor false"},
		{"dynamodb://locks?eventual-replicas=1", "eventual-replicas= is neither true nor false"},
		{"dynamodb://locks?ttl=expires", "ttl= is neither true nor false"},
		{"dynamodb://locks?sort-key=s", "sort-key= and sort-value= go together"},
		{"dynamodb://locks?sort-value=s", "sort-key= and sort-value= go together"},
		{"dynamodb://locks?sort-key=key&sort-value=s", `sort key and partition key are both "key"`},
		{"dynamodb://locks?partition-key=ownerName", `key attribute "ownerName" has the name of an attribute of a lock's item`},
		{"dynamodb://locks?sort-key=s&sort-value=" + strings.Repeat("v", 1025), "at most 1024"},
	} {
		_, err := storeurl.Parse(tc.url)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Parse(%.80q) = %v; want an error with %q", tc.url, err, tc.want)
			continue
		}
		if text := err.Error(); strings.Contains(text, "secret") && !strings.Contains(text, `parameter "secret-key"`) || strings.Contains(text, "AKIA") || strings.Count(text, "\n") > 0 {
			t.Errorf("Parse(%.80q) tells too much: %v", tc.url, err)
		}
	}
}

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
	l := mustParse(t, url)
	client, err := storeurl.Client(t.Context(), l)
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
			t.Errorf("%s: credentials %q, %v, %d questions to the machine's role; want %q and none", what, id, err, asked.Load(), want)
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

	for _, url := range []string{"dynamodb://locks?region=local", "dynamodb://locks?region=local&endpoint=http://192.0.2.1"} {
		asked.Store(0)
		_, _, err := connected(t, url)
		if err == nil || !strings.HasPrefix(err.Error(), `dynamodb table "locks": there are no credentials for AWS; set AWS_PROFILE`) || strings.Contains(err.Error(), "\n") {
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
	if _, _, err := connected(t, local+"&profile=nix"); err == nil || !strings.Contains(err.Error(), `there is no profile "nix"`) {
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
	if _, _, err := connected(t, "dynamodb://locks"); err == nil || !strings.Contains(err.Error(), "no region is named; write region= in the URL, or set AWS_REGION") {
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
	if _, err := l.Open(); err == nil || !strings.Contains(err.Error(), `there is no such table; check its name and the region, or create it with "tenure table create"`) {
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
