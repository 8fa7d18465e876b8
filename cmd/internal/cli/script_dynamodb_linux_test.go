// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// TestDynamoDBScripts runs the scripts of testdata/dynamodb, and those of
// testdata that are for any store. The environment of each has the name of a TABLE
// that the script itself makes, and the address of an ENGINE. DENY/OPERATION,...
// is the address of an engine whose user may not do certain things. STORE is an
// existing table.
func TestDynamoDBScripts(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	deny := newDenier(t, e)
	client := connect(t, e)
	runStoreScripts(t, "dynamodb", nil, func(env *testscript.Env) error {
		table := "tenure-test-" + rand.Text()
		store := table + "-locks"
		for _, pair := range [][2]string{
			{"AWS_EC2_METADATA_DISABLED", "true"},
			{"TABLE", table},
			{"ENGINE", e.URL},
			{"DENY", deny},
			{"STORE", "dynamodb://" + store + "?region=local&endpoint=" + e.URL},
		} {
			env.Setenv(pair[0], pair[1])
		}
		env.Defer(func() {
			if err := dropTables(context.WithoutCancel(t.Context()), client, table); err != nil {
				t.Error(err)
			}
		})
		return dynamostore.CreateTable(t.Context(), client, store, nil)
	})
}

// connect returns a client of an engine.
func connect(t *testing.T, e enginetest.DynamoDB) *dynamodb.Client {
	t.Helper()
	return dynamodb.New(dynamodb.Options{
		BaseEndpoint: &e.URL, Region: "local", Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
}

// dropTables deletes the tables whose names begin in the same way.
func dropTables(ctx context.Context, client *dynamodb.Client, prefix string) error {
	pages := dynamodb.NewListTablesPaginator(client, &dynamodb.ListTablesInput{})
	var drop []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		drop = append(drop, slices.DeleteFunc(page.TableNames,
			func(name string) bool { return !strings.HasPrefix(name, prefix) })...)
	}
	for _, name := range drop {
		_, err := client.UpdateTable(ctx, &dynamodb.UpdateTableInput{
			TableName: &name, DeletionProtectionEnabled: aws.Bool(false),
		})
		if err != nil {
			return fmt.Errorf("UpdateTable: %w", err)
		}
		if _, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: &name}); err != nil {
			return err
		}
	}
	return nil
}

// newDenier starts a proxy that refuses the operations which the path of its
// endpoint names, as DynamoDB does when they are not granted.
func newDenier(t *testing.T, e enginetest.DynamoDB) string {
	t.Helper()
	target, err := url.Parse(e.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		if slices.Contains(strings.Split(path.Base(r.URL.Path), ","), operation) {
			w.Header().Set("Content-Type", "application/x-amz-json-1.0")
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprintf(w, `{"__type":"com.amazon.coral.service#AccessDeniedException",`+
				`"Message":"User: u is not authorized to perform: dynamodb:%s"}`, operation)
			return
		}
		r.URL.Path = "/"
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// wire puts a proxy between the processes of the harness and DynamoDB.
func (s *harness) wire() *enginetest.Wire {
	s.t.Helper()
	e := enginetest.FullDynamoDB(s.t)
	w := enginetest.NewWire(s.t, e)
	s.url = strings.Replace(s.url, e.URL, w.URL, 1)
	return w
}

// The policy that tenure table policy prints grants what the commands ask of
// DynamoDB, and nothing else.
func TestPolicyIsWhatIsUsed(t *testing.T) {
	t.Parallel()
	s := newTableHarness(t)
	w := s.wire()
	// used has commands run, and returns what they ask for.
	used := func(commands ...[]string) []string {
		t.Helper()
		w.Counts()
		for _, args := range commands {
			if p := s.start(args...); p.status() != 0 {
				t.Errorf("tenure %q: status %d: %s", args, p.status(), p.stderr.String())
			}
		}
		var actions []string
		for operation := range w.Counts() {
			if operation == "TransactWriteItems" { // each of its parts is granted by its own
				operation = "UpdateItem"
			}
			actions = append(actions, "dynamodb:"+operation)
		}
		slices.Sort(actions)
		return slices.Compact(actions)
	}
	granted := func(flags ...string) []string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "tenure", append([]string{"table", "policy", "--offline", "-q"}, flags...)...)
		cmd.Env = s.env()
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var policy struct {
			Statement []struct{ Action []string }
		}
		if err := json.Unmarshal(out, &policy); err != nil {
			t.Fatal(err)
		}
		var actions []string
		for _, statement := range policy.Statement {
			actions = append(actions, statement.Action...)
		}
		slices.Sort(actions)
		return actions
	}
	run := []string{"run", "--wait", "30s", "job", "--", "true"}
	lead := []string{"lead", "--once", "job", "--", "true"}
	looks := [][]string{{"status"}, {"status", "job"}, {"history", "job"}, {"table", "describe"}}
	shared := s.url + "&shared=true"
	all := append(looks, run, run, lead, []string{"doctor", "--lease", "1m"},
		[]string{"run", "--store", shared, "other", "--", "true"})
	if d := cmp.Diff(granted(), used(all...)); d != "" {
		t.Errorf("the policy (-) and what is used (+):\n%s", d)
	}
	if d := cmp.Diff(granted("--read-only"), used(looks...)); d != "" {
		t.Errorf("the policy of who looks (-) and what is used (+):\n%s", d)
	}
}
