// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/tenurelock/tenure/evidence/bed/dynamo"
	"github.com/tenurelock/tenure/evidence/bed/page"
	"github.com/tenurelock/tenure/evidence/bed/proc"
	"github.com/tenurelock/tenure/internal/enginetest"
)

func TestMain(m *testing.M) {
	proc.Play(roles) // this binary is the program that the rig starts
	os.Exit(m.Run())
}

// TestRows throws some faults at Tenure, and at a library that does not pass all
// of them: a row that cannot fail would show nothing.
func TestRows(t *testing.T) {
	e := enginetest.FullDynamoDB(t)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{engine: e.URL, db: dynamo.Connect(e.URL), versions: map[string]string{}, program: program, dir: t.TempDir(), say: t.Logf}
	want := map[string][2]verdict{
		"lost-acquire":  {passed, failed},
		"stopped":       {passed, passed},
		"close-waiting": {passed, failed},
		"end-at-work":   {passed, failed},
		"tokens":        {passed, failed},
	}
	chosen, err := pick(subjects, tenureName+","+dynamolockName, "library", subject.id)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, row := range rows {
		verdicts, looked := want[row.id]
		if !looked {
			continue
		}
		delete(want, row.id)
		wg.Go(func() {
			cells, err := r.row(t.Context(), row, chosen)
			if err != nil {
				t.Error(err)
			}
			for i, s := range chosen {
				c := cells[s.name]
				t.Logf("%s, %s: %s: %s", row.id, s.name, c.Verdict, c.Seen)
				if err == nil && c.Verdict != verdicts[i] {
					t.Errorf("%s, %s: %s, %s; want %s", row.id, s.name, c.Verdict, c.Seen, verdicts[i])
				}
			}
		})
	}
	wg.Wait()
	for id := range want {
		t.Errorf("there is no row %s", id)
	}
}

// TestPage holds the page to the run that it shows.
func TestPage(t *testing.T) {
	r, err := readReport(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.complete(); err != nil {
		t.Error(err)
	}
	if err := page.Check(pageFile, r.markdown(), command); err != nil {
		t.Errorf("-write writes both, and -page the page alone: %v", err)
	}
}

// fullReport is a report in which all pass everything.
func fullReport() *report {
	r := &report{
		Cells: map[string]map[string]cell{}, Libraries: map[string]string{},
		Engines: map[engine]string{postgreSQL: "v2", etcdEngine: "v3", zooKeeper: "v4", apiServer: "v5", bucket: "v6"},
	}
	for _, row := range rows {
		r.Cells[row.id] = map[string]cell{}
		for _, s := range subjects {
			r.Libraries[s.name] = "v1"
			r.Cells[row.id][s.name] = cell{Verdict: passed, Seen: s.name + " did something"}
		}
	}
	return r
}

func TestComplete(t *testing.T) {
	if err := (&report{}).complete(); err == nil {
		t.Error("nothing is complete")
	}
	r := fullReport()
	if err := r.complete(); err != nil {
		t.Error(err)
	}
	r.Cells["stopped"][etcdName] = cell{Verdict: failed, Seen: "something"}
	if err := r.complete(); err != nil {
		t.Error(err)
	}
	r.Cells["stopped"][tenureName] = cell{Verdict: failed, Seen: "believed"}
	r.Cells["suspend"][onZooKeeperName] = cell{Verdict: failed, Seen: "believed, too"}
	r.Cells[manyRow][onPostgresName] = cell{Verdict: none, Seen: "has no such thing"}
	delete(r.Cells["tokens"], kubeName)
	delete(r.Cells["tokens"], onEtcdName)
	delete(r.Engines, etcdEngine)
	delete(r.Engines, apiServer)
	r.Cells["lost-cut"][onKubernetesName] = cell{Verdict: failed, Seen: "believed on"}
	r.Cells["former"] = nil
	err := r.complete()
	for _, want := range []string{
		"Tenure does not pass stopped: believed", "Tenure on ZooKeeper does not pass suspend: believed, too",
		"Tenure on PostgreSQL does not pass many: has no such thing", "tokens was not looked at for client-go",
		"tokens was not looked at for tenure-etcd", "the version of etcd is missing", "the version of Kubernetes is missing",
		"Tenure on Kubernetes does not pass lost-cut: believed on", "no row former",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestTables: Tenure is in the table of the libraries once, and after it once for each store. A store that a run has left out is not shown as if it had passed or failed.
func TestTables(t *testing.T) {
	const second = "\nTenure on its stores. "
	r := fullReport()
	r.Cells["stopped"][riverName] = cell{Verdict: failed, Seen: "river did something"}
	libraries, stores, found := strings.Cut(r.markdown(), second)
	if !found || strings.Contains(libraries, "tenure-postgres did") || !strings.Contains(libraries, "river did") {
		t.Errorf("the first table is\n%s", libraries)
	}
	for _, want := range []string{"Passed: DynamoDB 13 of 13, PostgreSQL 13 of 13, etcd 13 of 13, ZooKeeper 13 of 13, Kubernetes 13 of 13, a bucket 13 of 13."} {
		if !strings.Contains(stores, want) {
			t.Errorf("the second table has no %q", want)
		}
	}
	if strings.Contains(stores, "river did") {
		t.Error("River is in the second table")
	}

	for row := range r.Cells {
		delete(r.Cells[row], onEtcdName)
	}
	delete(r.Libraries, onEtcdName)
	delete(r.Engines, etcdEngine)
	if err := r.complete(); err != nil {
		t.Error(err)
	}
	_, stores, _ = strings.Cut(r.markdown(), second)
	for _, want := range []string{"Tenure on etcd: not looked at in this run.", "Passed: DynamoDB 13 of 13, PostgreSQL 13 of 13, ZooKeeper 13 of 13, Kubernetes 13 of 13, a bucket 13 of 13."} {
		if !strings.Contains(stores, want) {
			t.Errorf("without etcd the second table has no %q", want)
		}
	}

	r.Libraries = map[string]string{tenureName: "v1"}
	_, stores, _ = strings.Cut(r.markdown(), second)
	if !strings.Contains(stores, "Passed: DynamoDB 13 of 13. ") || strings.Count(stores, notLooked) != len(subjects)-1 {
		t.Errorf("with DynamoDB alone the second table is\n%s", stores)
	}
}

// TestLeaseAPI is about the check on which all elections on leases rest.
func TestLeaseAPI(t *testing.T) {
	server := httptest.NewServer(newLeaseAPI())
	defer server.Close()
	const path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	for i, c := range []struct {
		method, path, version string
		want                  int
	}{
		{http.MethodGet, path + "/a", "", http.StatusNotFound},
		{http.MethodPut, path + "/a", "", http.StatusNotFound},
		{http.MethodPost, path, "", http.StatusCreated},
		{http.MethodPost, path, "", http.StatusConflict},
		{http.MethodPut, path + "/a", "1", http.StatusOK},
		{http.MethodPut, path + "/a", "1", http.StatusConflict},
		{http.MethodPut, path + "/a", "2", http.StatusOK},
		{http.MethodGet, path + "/a", "", http.StatusOK},
	} {
		body := `{"metadata":{"name":"a","resourceVersion":"` + c.version + `"}}`
		request, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("%d, %s of version %q: %d; want %d", i, c.method, c.version, answer.StatusCode, c.want)
		}
	}
}

func TestMargins(t *testing.T) {
	for want, figures := range map[string][]float64{
		"pass: told 10 ms to 2.00 s before (2 runs)":   {10, 2000},
		"fail: told 1.0 ms to 2.0 ms late (2 runs)":    {-1, -2},
		"fail: told up to 1.50 s late, in 1 of 3 runs": {5, -1500, 20},
	} {
		if c := margins(figures); string(c.Verdict)+": "+c.Seen != want {
			t.Errorf("%v: %s: %s; want %s", figures, c.Verdict, c.Seen, want)
		}
	}
	if c := believed([]float64{0, 0}); c.Verdict != passed {
		t.Errorf("nobody believed: %+v", c)
	}
	if c := believed([]float64{0, 0.5}); c.Verdict != failed {
		t.Errorf("one believed: %+v", c)
	}
}

// TestRiver throws faults at River, one that it passes and one that it does not.
func TestRiver(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	db, err := newDatabase(t.Context(), enginetest.PostgreSQL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	r := &rig{database: db, versions: map[string]string{}, program: program, dir: t.TempDir(), say: t.Logf}
	chosen, err := pick(subjects, riverName, "library", subject.id)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]verdict{"lost-acquire": failed, "close-waiting": passed, "tokens": passed, manyRow: none, endAtWorkRow: none, "dead-try": none}
	var wg sync.WaitGroup
	for _, row := range rows {
		verdict, looked := want[row.id]
		if !looked {
			continue
		}
		delete(want, row.id)
		wg.Go(func() {
			cells, err := r.row(t.Context(), row, chosen)
			if c := cells[riverName]; err != nil || c.Verdict != verdict {
				t.Errorf("%s: %s, %s, %v; want %s", row.id, c.Verdict, c.Seen, err, verdict)
			}
		})
	}
	wg.Wait()
	for id := range want {
		t.Errorf("there is no row %s", id)
	}
}

// TestRiverWrites: the commit of a bid and a renewal are writes, and nothing else is.
func TestRiverWrites(t *testing.T) {
	isWrite := riverWrites()
	for _, piece := range []struct {
		text string
		want bool
	}{
		{"begin", false},
		{"-- name: JobGetAvailable :many", false},
		{"commit", false},
		{"begin", false},
		{"-- name: LeaderDeleteExpired :execrows", false},
		{"-- name: LeaderAttemptElect :one", false},
		{"commit", true},
		{"commit", false},
		{"-- name: LeaderAttemptElect :one", false},
		{"rollback", false},
		{"commit", false},
		{"-- name: LeaderAttemptReelect :one", true},
	} {
		if got := isWrite([]byte(piece.text)); got != piece.want {
			t.Errorf("%s is a write: %v", piece.text, got)
		}
	}
}
