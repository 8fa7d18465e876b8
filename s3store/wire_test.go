// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// answering is a server that gives one answer to all.
type answering struct {
	status int
	code   string // "": no body
	cut    bool   // the connection ends before an answer
	n      atomic.Int64
}

func (a *answering) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.n.Add(1)
	if a.cut {
		panic(http.ErrAbortHandler)
	}
	w.WriteHeader(a.status)
	if a.code != "" {
		fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of a test</Message></Error>", a.code)
	}
}

// at starts a server, and returns objects of a client whose settings ask for retries.
func (a *answering) at(t *testing.T) *objects {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return newObjects(s3.New(s3.Options{
		BaseEndpoint: &server.URL, Region: enginetest.S3Region, UsePathStyle: true, RetryMaxAttempts: 2, RetryMode: aws.RetryModeStandard,
		Credentials: credentials.NewStaticCredentialsProvider(enginetest.S3Key, enginetest.S3Secret, ""),
	}), "locks")
}

// What a row of TestAnswers wants.
const (
	isUnknown = iota
	isSlow
	isMismatch
	isBusy
	isNotApplied
	isPermanent
)

// TestAnswers: what each answer says of a write, and that each call is one request.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		code   string
		want   int
	}{
		{412, "PreconditionFailed", isMismatch},
		{404, "NoSuchKey", isMismatch},
		{404, "NoSuchBucket", isPermanent},
		{404, "", isUnknown},
		{409, "ConditionalRequestConflict", isBusy},
		{409, "OperationAborted", isUnknown},
		{409, "ObjectParentIsFile", isUnknown},
		{409, "", isUnknown},
		{400, "EntityTooLarge", isPermanent},
		{400, "RequestTimeout", isUnknown},
		{400, "ExpiredToken", isNotApplied},
		{400, "SomethingElse", isUnknown},
		{401, "", isPermanent},
		{403, "AccessDenied", isPermanent},
		{403, "InvalidAccessKeyId", isPermanent},
		{403, "SignatureDoesNotMatch", isPermanent},
		{403, "RequestTimeTooSkewed", isNotApplied},
		{301, "PermanentRedirect", isPermanent},
		{307, "TemporaryRedirect", isNotApplied},
		{429, "TooManyRequests", isSlow},
		{500, "InternalError", isUnknown},
		{501, "NotImplemented", isPermanent},
		{502, "", isUnknown},
		{503, "SlowDown", isSlow},
		{504, "", isUnknown},
	} {
		t.Run(fmt.Sprint(c.status, c.code), func(t *testing.T) {
			a := &answering{status: c.status, code: c.code}
			o := a.at(t)
			_, err := o.Put(t.Context(), "name", []byte("body"), `"tag"`)
			if n := a.n.Swap(0); n != 1 {
				t.Errorf("a write took %d requests", n)
			}
			is := func(target error) bool { return errors.Is(err, target) }
			got := isUnknown
			switch {
			case is(objectmap.ErrMismatch):
				got = isMismatch
			case is(objectmap.ErrBusy):
				got = isBusy
			case is(driver.ErrPermanent):
				got = isPermanent
			case is(driver.ErrNotApplied):
				got = isNotApplied
			case is(driver.ErrThrottled):
				got = isSlow
			}
			if got != c.want || err == nil || (got == isPermanent) != (is(driver.ErrPermanent) && is(driver.ErrNotApplied)) {
				t.Errorf("%d, want %d: %v", got, c.want, err)
			}
			if c.status == 403 && c.code == "RequestTimeTooSkewed" && !strings.Contains(err.Error(), "clock of this machine") {
				t.Errorf("%v", err)
			}
			for what, call := range map[string]func() error{
				"a look":     func() error { _, _, err := o.Get(t.Context(), "name"); return err },
				"a deletion": func() error { return o.Delete(t.Context(), "name", `"tag"`) },
				"a list":     func() error { _, _, err := o.Names(t.Context(), "", ""); return err },
			} {
				_ = call() // its error is another matter
				if n := a.n.Swap(0); n != 1 {
					t.Errorf("%s took %d requests", what, n)
				}
			}
		})
	}
}

// TestNoAnswer: a connection that ends after the request leaves the outcome open, and is not
// tried again; one that is refused does not.
func TestNoAnswer(t *testing.T) {
	a := &answering{cut: true}
	if _, err := a.at(t).Put(t.Context(), "name", nil, ""); err == nil || errors.Is(err, driver.ErrNotApplied) || a.n.Load() != 1 {
		t.Errorf("%d requests, %v", a.n.Load(), err)
	}
	nobody := siteAt(fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t)))
	if _, err := newObjects(nobody.client(t), "locks").Put(t.Context(), "name", nil, ""); !errors.Is(err, driver.ErrNotApplied) || errors.Is(err, driver.ErrPermanent) {
		t.Errorf("nobody listens: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.at(t).Put(ctx, "name", nil, ""); !errors.Is(err, driver.ErrNotApplied) || !errors.Is(err, context.Canceled) {
		t.Errorf("a context that was over before: %v", err)
	}
}

// TestRequests: what each call of the store sends.
func TestRequests(t *testing.T) {
	b := enginetest.NewBucket(t)
	s := siteAt(b.URL).open(t, "")
	ctx := t.Context()
	costs := func(what, want string, err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := strings.TrimPrefix(fmt.Sprint(b.Counts()), "map"); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	costs("opening", "[DELETE:2 GET:1 PUT:5]", nil)
	rec, _, err := s.Claim(ctx, held("lock"))
	costs("claim of an absent lock", "[GET:1 PUT:1]", err)
	for range 3 {
		rec, err = s.Swap(ctx, rec, beat(rec))
		costs("heartbeat", "[PUT:1]", err)
	}
	free := beat(rec)
	free.State, free.End = driver.Released, driver.EndReleased
	_, err = s.Swap(ctx, rec, free)
	costs("release", "[PUT:1]", err)
	rec, _, err = s.Claim(ctx, held("lock"))
	costs("claim of a lock that was seen last here", "[PUT:1]", err)
	_, err = s.Get(ctx, "lock", driver.Strong)
	costs("look", "[GET:1]", err)
	b.Break(enginetest.Fails500, nil)
	_, err = s.Swap(ctx, rec, beat(rec))
	if err == nil || errors.Is(err, driver.ErrNotApplied) {
		t.Errorf("heartbeat that was answered with 500: %v", err)
	}
	costs("heartbeat that was answered with 500", "[PUT:1]", nil)
}

// TestOddNames: what no folder can be called comes back, in order.
func TestOddNames(t *testing.T) { oddNames(t, newSite(t)) }

func TestVersitygwOddNames(t *testing.T) {
	oddNames(t, siteAt(enginetest.StartVersitygw(t, 1, "locks")[0].URL))
}

func oddNames(t *testing.T, site site) {
	s := site.open(t, newPrefix())
	keys := []string{
		"x", "x/y", "x//y", ".", "..", "/x", "x/..", "x/.", strings.Repeat("ü", driver.MaxKeyLen/2), strings.Repeat("a/", driver.MaxKeyLen/2),
		strings.Repeat("k", driver.MaxKeyLen), strings.Repeat("k", 200), strings.Repeat("k", 201), strings.Repeat("k", 400),
	}
	for _, key := range keys {
		if _, _, err := s.Claim(t.Context(), held(key)); err != nil {
			t.Errorf("%.20q: %v", key, err)
		}
	}
	slices.Sort(keys)
	var got []string
	for cursor := ""; ; {
		page, err := s.List(t.Context(), "", cursor)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range page.Records {
			got = append(got, rec.Key)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	if !slices.Equal(got, keys) {
		t.Errorf("%.10q, want %.10q", got, keys)
	}
}

// TestDenied: without rights nothing is tried again, and the sentence says what to do.
func TestDenied(t *testing.T) {
	b := enginetest.NewBucket(t)
	b.Deny(true)
	_, err := Open(t.Context(), siteAt(b.URL).client(t), b.Name, nil)
	if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "tenure table policy") {
		t.Errorf("%v", err)
	}
	b.Deny(false)
	if _, err = Open(t.Context(), siteAt(b.URL).client(t), "another", &Options{TrustServer: true}); !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), "no such bucket") {
		t.Errorf("%v", err)
	}
}

func TestTrustServer(t *testing.T) {
	b := enginetest.NewBucket(t)
	s, err := New(siteAt(b.URL).client(t), b.Name, &Options{TrustServer: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err = s.Claim(t.Context(), held("lock")); err != nil {
		t.Error(err)
	}
	if got := b.Counts(); got[http.MethodPut] != 1 || got[http.MethodDelete] != 0 || !s.KeepsTokens() {
		t.Errorf("requests: %v", got)
	}
}

func TestOptions(t *testing.T) {
	client := siteAt("http://127.0.0.1").client(t)
	if _, err := New(client, "locks", &Options{Prefix: "no-slash"}); err == nil || !strings.HasPrefix(err.Error(), "s3store: prefix") {
		t.Errorf("%v", err)
	}
	if _, err := New(nil, "locks", nil); err == nil {
		t.Error("no client, no error")
	}
	if _, err := New(client, "", nil); err == nil {
		t.Error("no bucket, no error")
	}
}

// TestIdleConnectionsGo: what the network has forgotten is not asked again.
func TestIdleConnectionsGo(t *testing.T) {
	b := enginetest.NewBucket(t)
	relay := enginetest.NewRelay(t, strings.TrimPrefix(b.URL, "http://"))
	url := "http://" + relay.Addr
	s, err := New(s3.New(s3.Options{
		BaseEndpoint: &url, Region: enginetest.S3Region, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(enginetest.S3Key, enginetest.S3Secret, ""),
	}), b.Name, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	look := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := s.Get(ctx, "lock", driver.Strong)
		return err
	}
	if err := look(patience); !errors.Is(err, driver.ErrNotFound) {
		t.Fatal(err)
	}
	resume := relay.Hold()
	if err := look(100 * time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a server that hangs: %v", err)
	}
	resume()
	if err := look(patience); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("after that: %v", err)
	}
}
