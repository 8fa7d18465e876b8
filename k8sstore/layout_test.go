// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenurelock/tenure/driver"
)

// TestKubectl: what "kubectl get lease" shows, and the fields that electors read.
func TestKubectl(t *testing.T) {
	s, other, _ := setUp(t, nil)
	claim := held("lock")
	claim.Owner, claim.Lease = "web-7", 14500*time.Millisecond
	claim.Since = time.Date(2026, 3, 29, 2, 30, 0, 123456789, time.UTC)
	rec, _, err := s.Claim(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	shows := func(holder string, seconds, transitions int32) v1.LeaseSpec {
		t.Helper()
		spec := mustLease(t, s, "lock").Spec
		if spec.HolderIdentity == nil || *spec.HolderIdentity != holder || *spec.LeaseDurationSeconds != seconds || *spec.LeaseTransitions != transitions {
			t.Errorf("it shows %s, %d s, %d transitions; want %s, %d, %d", *spec.HolderIdentity, *spec.LeaseDurationSeconds, *spec.LeaseTransitions, holder, seconds, transitions)
		}
		if spec.AcquireTime == nil || !spec.AcquireTime.Time.Equal(claim.Since.Truncate(time.Microsecond)) {
			t.Errorf("acquireTime %v, want %v", spec.AcquireTime, claim.Since)
		}
		if age := time.Since(spec.RenewTime.Time); age < -time.Second || age > patience {
			t.Errorf("renewTime is %v ago", age)
		}
		return spec
	}
	was := shows("web-7", 15, 0)
	var table struct {
		ColumnDefinitions []struct{ Name string }
		Rows              []struct{ Cells []any }
	}
	r := s.calls.request(http.MethodGet, leases, s.namespace, "", nil).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	if err := s.calls.do(t.Context(), r, nil, &table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%+v, %v", table, err)
	}
	if cells := table.Rows[0].Cells; cells[0] != "tenure.lock" || cells[1] != "web-7" {
		t.Errorf("kubectl shows %v", cells)
	}
	step := func(by *Store, change func(*driver.Record)) {
		t.Helper()
		next := held("lock")
		next.Owner, next.Lease, next.Since, next.Token = rec.Owner, rec.Lease, claim.Since, rec.Token
		change(&next)
		if rec, err = by.Swap(t.Context(), rec, next); err != nil {
			t.Fatal(err)
		}
	}
	for _, by := range []*Store{s, other, s} { // with knowledge of it, and without
		step(by, func(*driver.Record) {})
		if is := shows("web-7", 15, 0); is.RenewTime.Equal(was.RenewTime) {
			t.Error("a heartbeat leaves renewTime as it was, and electors take its holder for dead")
		} else {
			was = is
		}
	}
	step(s, func(r *driver.Record) { r.Owner, r.Token = "web-8", r.Token+1 })
	shows("web-8", 15, 1)
	step(s, func(r *driver.Record) { r.State, r.End = driver.Released, driver.EndReleased })
	shows("", 1, 1)
	claim.Owner = "web-9"
	claim.Version += "x"
	if _, _, err = other.Claim(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	shows("web-9", 15, 2)

	// Two writes in one microsecond, or with stopped clocks, are distinguished.
	now := time.Now().UTC().Truncate(time.Microsecond)
	is := state{rev: "1", spec: v1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: now}}}
	if spec := s.specOf(&is, rec, now); spec.RenewTime.Time.Equal(now) {
		t.Error("a write of the same instant is no sign of life")
	}
}

// TestOthersKeepTheirs: what others have in a Lease survives all that Tenure does with it.
func TestOthersKeepTheirs(t *testing.T) {
	s, _, _ := setUp(t, nil)
	rec := mustClaim(t, s, "lock")
	patch := `{"metadata":{"labels":{"team":"a"},"annotations":{"note":"x"},"finalizers":["example.com/f"]}}`
	if err := s.calls.patch(t.Context(), leases, s.namespace, s.object("lock"), json.RawMessage(patch), nil); err != nil {
		t.Fatal(err)
	}
	for i, next := range []driver.Record{beat(rec), released(rec)} {
		var err error
		if rec, err = s.Swap(t.Context(), rec, next); err != nil {
			t.Fatal(err)
		}
		if o := mustLease(t, s, "lock"); o.Labels["team"] != "a" || o.Annotations["note"] != "x" || !slices.Equal(o.Finalizers, []string{"example.com/f"}) {
			t.Errorf("after step %d: %v, %v, %v", i, o.Labels, o.Annotations, o.Finalizers)
		}
	}
	if err := s.calls.patch(t.Context(), leases, s.namespace, s.object("lock"), json.RawMessage(`{"metadata":{"finalizers":null}}`), nil); err != nil {
		t.Fatal(err)
	}
}

// configMapsOf returns the names of all ConfigMaps of the store's.
func configMapsOf(t *testing.T, s *Store) []string {
	t.Helper()
	var list struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	if err := s.calls.get(t.Context(), configMaps, s.namespace, "", nil, &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list.Items {
		if strings.HasPrefix(o.Metadata.Name, s.options.Prefix) {
			names = append(names, o.Metadata.Name)
		}
	}
	return names
}

// TestLongData: long data are in a ConfigMap, come and go with the record, are not stored
// again by a heartbeat, and leave nothing behind.
func TestLongData(t *testing.T) {
	s, fresh, w := setUp(t, nil)
	long, short := bytes.Repeat([]byte("x"), driver.MaxDataLen), []byte("short")
	claim := held("lock")
	claim.Data = long
	rec, _, err := s.Claim(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	swap := func(by *Store, change func(*driver.Record)) {
		t.Helper()
		next := beat(rec)
		next.Data = rec.Data
		change(&next)
		if rec, err = by.Swap(t.Context(), rec, next); err != nil {
			t.Fatal(err)
		}
		for _, reader := range []*Store{s, fresh} {
			if got, err := reader.Get(t.Context(), "lock", driver.Strong); err != nil || !bytes.Equal(got.Data, next.Data) || len(got.Requests) != len(next.Requests) {
				t.Fatalf("%d bytes of data, %d requests, %v; want %d, %d", len(got.Data), len(got.Requests), err, len(next.Data), len(next.Requests))
			}
		}
	}
	count := func(what string, want int) []string {
		t.Helper()
		names := configMapsOf(t, s)
		if len(names) != want {
			t.Errorf("%s: ConfigMaps %q, want %d", what, names, want)
		}
		return names
	}
	before := count("claim", 1)
	w.requests()
	if rec, err = s.Swap(t.Context(), rec, func() driver.Record { next := beat(rec); next.Data = long; return next }()); err != nil {
		t.Fatal(err)
	}
	if sent := w.requests(); len(sent) != 1 {
		t.Errorf("a heartbeat with long data: %q", sent)
	}
	swap(fresh, func(*driver.Record) {})
	if after := count("heartbeats", 1); !slices.Equal(before, after) {
		t.Errorf("a heartbeat has stored the data again: %q, %q", before, after)
	}
	swap(s, func(r *driver.Record) { r.Data = short })
	count("short data", 0)
	swap(s, func(r *driver.Record) { r.Data = long[1:] })
	swap(fresh, func(r *driver.Record) { r.Data = long[2:] })
	count("other data", 1)
	// A record that an annotation has no room for.
	many := func(r *driver.Record) {
		for i := range driver.MaxRequests {
			r.Requests = append(r.Requests, driver.Request{
				ID: fmt.Sprint("q-", i), Kind: driver.Confirm, Lock: strings.Repeat("k", driver.MaxKeyLen), By: strings.Repeat("\x01", driver.MaxOwnerLen),
				Reason: strings.Repeat("\x02", driver.MaxReasonLen), To: strings.Repeat("ü", driver.MaxOwnerLen/2),
			})
		}
	}
	swap(s, many)
	count("many requests", 2)
	swap(fresh, many)
	count("many requests, again", 2)
	page, err := fresh.List(t.Context(), "", "")
	if err != nil || len(page.Records) != 1 || len(page.Records[0].Data) != len(long)-2 || len(page.Records[0].Requests) != driver.MaxRequests {
		t.Errorf("List: %d records, %v", len(page.Records), err)
	}
	swap(s, func(r *driver.Record) { r.State, r.End = driver.Released, driver.EndReleased })
	count("release", 1)
	// The next holder has them, whether or not it knows of the release.
	for _, by := range []*Store{s, fresh} {
		if rec, _, err = by.Claim(t.Context(), held("lock")); err != nil || len(rec.Data) != len(long)-2 {
			t.Fatalf("claim: %d bytes of data, %v", len(rec.Data), err)
		}
		swap(by, func(r *driver.Record) { r.State, r.End = driver.Released, driver.EndReleased })
	}
	if err := s.Delete(t.Context(), driver.Record{Key: "lock", Version: rec.Version, Token: rec.Token}); err != nil {
		t.Fatal(err)
	}
	count("deletion", 0)
}

// TestPartsLeftBehind: a writer that dies, or loses, between its two writes changes
// nothing readable, and the next writer removes its ConfigMap.
func TestPartsLeftBehind(t *testing.T) {
	s, other, w := setUp(t, nil)
	long := bytes.Repeat([]byte("x"), driver.MaxDataLen)
	rec := mustClaim(t, s, "lock")
	with := func(data []byte) driver.Record {
		next := beat(rec)
		next.Data = data
		return next
	}
	w.set(func(r *http.Request) fault {
		if r.Method == http.MethodPatch {
			return refuse
		}
		return pass
	})
	if _, err := s.Swap(t.Context(), rec, with(long)); err == nil || errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("the write of a Lease that is cut: %v", err)
	}
	w.set(nil)
	if got, err := other.Get(t.Context(), "lock", driver.Strong); err != nil || len(got.Data) > 0 || len(configMapsOf(t, s)) != 1 {
		t.Errorf("it shows %d bytes of data, %v", len(got.Data), err)
	}
	// A writer that loses removes what it has written, and leaves what others have.
	var err error
	if rec, err = other.Swap(t.Context(), rec, with(long[1:])); err != nil {
		t.Fatal(err)
	}
	kept := configMapsOf(t, s)
	if len(kept) != 1 {
		t.Errorf("left behind: %q", kept)
	}
	stale := rec
	stale.Version = "stale"
	s.known.Forget("lock")
	s.known.Note("lock", state{rec: stale, rev: "1"}) // it believes that it may
	if _, err := s.Swap(t.Context(), stale, with(long)); err == nil {
		t.Error("a stale write was applied")
	}
	if now := configMapsOf(t, s); !slices.Equal(now, kept) {
		t.Errorf("ConfigMaps %q, want %q", now, kept)
	}
	if got, err := other.Get(t.Context(), "lock", driver.Strong); err != nil || !bytes.Equal(got.Data, long[1:]) {
		t.Errorf("it shows %d bytes of data, %v", len(got.Data), err)
	}
	// Parts that were deleted, or changed, by hand are an error, and never read as no data.
	if err := s.calls.remove(t.Context(), configMaps, s.namespace, kept[0], ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []driver.Consistency{driver.Strong, driver.Eventual} {
		if _, err := other.Get(t.Context(), "lock", c); !errors.Is(err, driver.ErrUnreadable) || !strings.Contains(fmt.Sprint(err), kept[0]) {
			t.Errorf("a read without its data: %v", err)
		}
	}
}

// TestReadWhileDataChange: a reader meets data and record of one write, however often they
// change.
func TestReadWhileDataChange(t *testing.T) {
	s, other, _ := setUp(t, nil)
	rec := mustClaim(t, s, "lock")
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				ended <- nil
				return
			default:
			}
			next := beat(rec)
			next.Label = fmt.Sprint("label-", i)
			next.Data = bytes.Repeat([]byte(next.Label), 1000)
			var err error
			if rec, err = s.Swap(t.Context(), rec, next); err != nil {
				ended <- err
				return
			}
		}
	}()
	labels := map[string]bool{}
	for end := time.Now().Add(patience); len(labels) < 20 && time.Now().Before(end); {
		got, err := other.Get(t.Context(), "lock", driver.Strong)
		if err != nil && !strings.Contains(err.Error(), "try again") {
			t.Fatal(err)
		}
		if err == nil && got.Label != "" {
			if !bytes.Equal(got.Data, bytes.Repeat([]byte(got.Label), 1000)) {
				t.Fatalf("label %s with data of another write", got.Label)
			}
			labels[got.Label] = true
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(labels) < 20 {
		t.Errorf("%d states were read", len(labels))
	}
}

// TestOvertakes: resourceVersions are compared as the numbers that they are.
func TestOvertakes(t *testing.T) {
	if older, newer := (state{rev: "9"}), (state{rev: "10"}); !newer.Overtakes(older) || older.Overtakes(newer) {
		t.Error("an answer that was overtaken counts")
	}
}
