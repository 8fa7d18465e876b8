// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/internal/enginetest/buckets"
)

// answering is a server that answers with a status, and a code with details if it is not empty.
func answering(status int, code, detail string) *buckets.Answer {
	a := &buckets.Answer{Status: status, Header: map[string]string{"Content-Type": "application/xml"}}
	if code != "" {
		a.Header["X-Ms-Error-Code"] = code
		a.Body = "\ufeff<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>of a test\nRequestId:1</Message>" +
			"<AuthenticationErrorDetail>" + detail + "</AuthenticationErrorDetail></Error>"
	}
	return a
}

// at is the container of a server.
func at(url string) site { return site{url + "/" + enginetest.AzureAccount + "/locks"} }

// TestAnswers: what each answer says of a write, and that each call is one request.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		status       int
		code, detail string
		want         buckets.Outcome
		says         string
	}{
		{412, "ConditionNotMet", "", buckets.Mismatch, ""},
		{412, "", "", buckets.Mismatch, ""},
		{412, "LeaseIdMissing", "", buckets.NotApplied, "holds an Azure lease"},
		{412, "SomethingElse", "", buckets.Unknown, ""},
		{404, "BlobNotFound", "", buckets.Mismatch, ""},
		{404, "ContainerNotFound", "", buckets.Permanent, "no such container"},
		{404, "", "", buckets.Unknown, ""},
		{409, "BlobAlreadyExists", "", buckets.Unknown, ""}, // of a create alone it says something
		{409, "OperationTimedOut", "", buckets.Unknown, ""},
		{409, "ContainerBeingDeleted", "", buckets.NotApplied, ""},
		{409, "BlobImmutableDueToPolicy", "", buckets.Permanent, "immutable"},
		{409, "BlobArchived", "", buckets.Permanent, "archive"},
		{409, "SnapshotsPresent", "", buckets.NotApplied, "snapshots"},
		{409, "", "", buckets.Unknown, ""},
		{400, "InvalidHeaderValue", "", buckets.Permanent, "version of the protocol"},
		{400, "SomethingElse", "", buckets.Unknown, ""},
		{401, "InvalidAuthenticationInfo", "Lifetime validation failed. The token is expired.", buckets.NotApplied, "clock of this machine"},
		{401, "", "", buckets.Permanent, ""},
		{403, "AuthenticationFailed", "Request date header too old", buckets.NotApplied, "clock of this machine"},
		{403, "AuthenticationFailed", "Signature did not match", buckets.Permanent, "Signature did not match"},
		{403, "AuthorizationPermissionMismatch", "", buckets.Permanent, "Storage Blob Data Contributor"},
		{413, "RequestBodyTooLarge", "", buckets.Permanent, ""},
		{429, "", "", buckets.Slow, ""},
		{200, "", "", buckets.Unknown, ""},
		{500, "InternalError", "", buckets.Unknown, ""},
		{500, "OperationTimedOut", "", buckets.Unknown, ""},
		{501, "", "", buckets.Permanent, ""},
		{502, "", "", buckets.Unknown, ""},
		{503, "ServerBusy", "", buckets.Slow, ""},
		{504, "", "", buckets.Unknown, ""},
	} {
		t.Run(fmt.Sprint(c.status, c.code, c.detail), func(t *testing.T) {
			a := answering(c.status, c.code, c.detail)
			err := buckets.EachIsOne(t, at(a.Serve(t)).objects(t), `"tag"`, a)
			if got := buckets.OutcomeOf(err); got != c.want || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s, want %s: %v", got, c.want, err)
			}
		})
	}
	exists := answering(409, "BlobAlreadyExists", "")
	if _, err := at(exists.Serve(t)).objects(t).Put(t.Context(), "name", []byte("body"), ""); buckets.OutcomeOf(err) != buckets.Mismatch {
		t.Errorf("a create of what is there: %v", err)
	}
}

// TestNoAnswer: a connection that ends after the request leaves the outcome open, and is not
// tried again; a refused connection leaves nothing open.
func TestNoAnswer(t *testing.T) {
	a := &buckets.Answer{Cut: true}
	nobody := site{fmt.Sprintf("http://127.0.0.1:%d/%s/locks?sig=secret", enginetest.FreePort(t), enginetest.AzureAccount)}
	err := buckets.NoAnswer(t, at(a.Serve(t)).objects(t), a, nobody.objects(t))
	if err == nil || !strings.Contains(err.Error(), "cannot be reached") || strings.Contains(err.Error(), "secret") {
		t.Errorf("nobody listens: %v", err)
	}
	if err := at(a.Serve(t)).objects(t).Delete(t.Context(), "name", `"tag"`); buckets.OutcomeOf(err) != buckets.Unknown {
		t.Errorf("a deletion: %v", err)
	}
}

// tokens is a credential.
type tokens struct{ err error }

func (c tokens) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

// TestCredential: a write without a token was not sent, whatever the source of tokens answers;
// at the next try there may be a token.
func TestCredential(t *testing.T) {
	a := answering(201, "", "")
	elsewhere := at(answering(412, "ConditionNotMet", "").Serve(t))
	_, refused := elsewhere.client(t).GetProperties(t.Context(), nil)
	client, err := container.NewClient(at(a.Serve(t)).url, tokens{refused}, &container.ClientOptions{ClientOptions: policy.ClientOptions{InsecureAllowCredentialWithHTTP: true}})
	if err != nil {
		t.Fatal(err)
	}
	o, err := newObjects(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = o.Put(t.Context(), "name", []byte("body"), `"tag"`); buckets.OutcomeOf(err) != buckets.NotApplied || !strings.Contains(err.Error(), "credential") || a.Requests() != 0 {
		t.Errorf("%d requests, %v", a.Requests(), err)
	}
	if err = o.Delete(t.Context(), "name", `"tag"`); buckets.OutcomeOf(err) != buckets.Unknown {
		t.Errorf("a deletion: %v", err)
	}
}

// late is a transport that gives up before it has sent a request, and sends it all the same.
type late struct {
	given chan struct{} // closed when nobody waits any more
	sent  chan error
}

func (l late) Do(r *http.Request) (*http.Response, error) {
	go func() {
		<-l.given
		_, err := io.ReadAll(r.Body)
		l.sent <- err
	}()
	return nil, context.DeadlineExceeded
}

// TestUnsentStaysSo: a write that the store has reported as not sent is not sent later.
func TestUnsentStaysSo(t *testing.T) {
	l := late{make(chan struct{}), make(chan error, 1)}
	o, err := newObjects(site{"http://127.0.0.1:1/" + enginetest.AzureAccount + "/locks"}.clientWith(t, l), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Put(t.Context(), "name", []byte("body"), ""); buckets.OutcomeOf(err) != buckets.NotApplied {
		t.Errorf("%v", err)
	}
	close(l.given)
	if err := <-l.sent; err == nil {
		t.Error("the body was read after that")
	}
}

// TestBlobNames: no part of a name ends with a dot, which Azure drops, and each name comes back.
func TestBlobNames(t *testing.T) {
	s, err := New(site{"http://127.0.0.1/account/locks"}.client(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("k", 199)
	for _, key := range []string{"x", "x.", "x..", ".", "..", "x/.", "x./y", "x%2E", "x//y", long + ".", long + "k.", long + "k.."} {
		name := s.ObjectName(key)
		blob := blobOf(name)
		for part := range strings.SplitSeq(blob, "/") {
			if part == "" || strings.HasSuffix(part, ".") {
				t.Errorf("%.40q has part %q", blob, part)
			}
		}
		if back := nameOf(blob); back != name {
			t.Errorf("%.40q comes back as %.40q", name, back)
		}
	}
}

// TestNames: a list has the names that begin with the prefix, whose dots Azure drops, and no
// folders, in as many pages as the server makes.
func TestNames(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := `<Blob><Name>r/x%2E</Name></Blob><Blob><Name>r/x</Name></Blob>` +
			`<Blob><Name>r/x.folder</Name><Properties><ResourceType>directory</ResourceType></Properties></Blob>`
		next := "2"
		if r.URL.Query().Get("marker") == next {
			page, next = `<Blob><Name>r/x.1</Name></Blob><Blob><Name>r/x1</Name></Blob>`, ""
		}
		if got := r.URL.Query().Get("prefix"); got != "r/x" {
			t.Errorf("asked for prefix %q", got)
		}
		w.Header().Set("Content-Type", "application/xml")
		fmt.Fprintf(w, `<EnumerationResults><Blobs>%s</Blobs><NextMarker>%s</NextMarker></EnumerationResults>`, page, next)
	}))
	defer server.Close()
	o := at(server.URL).objects(t)
	for cursor, want := range map[string]string{"": "[r/x.] 2", "2": "[r/x.1] "} {
		names, next, err := o.Names(t.Context(), "r/x.", cursor)
		if got := fmt.Sprint(names, " ", next); got != want || err != nil {
			t.Errorf("after %q: %q, want %q, %v", cursor, got, want, err)
		}
	}
}

// TestOpen: without rights, or a container, nothing is tried again, and the sentence says what
// to do.
func TestOpen(t *testing.T) {
	for _, c := range []struct {
		status     int
		code, says string
	}{
		{403, "AuthorizationPermissionMismatch", "Storage Blob Data Contributor"},
		{404, "ContainerNotFound", "no such container"},
	} {
		for _, trust := range []bool{false, true} {
			a := answering(c.status, c.code, "")
			_, err := Open(t.Context(), at(a.Serve(t)).client(t), &Options{TrustServer: trust})
			if !errors.Is(err, driver.ErrPermanent) || !strings.Contains(err.Error(), `container "locks"`) ||
				!strings.Contains(err.Error(), c.says) || a.Requests() != 1 {
				t.Errorf("trust %t: %d requests: %v", trust, a.Requests(), err)
			}
		}
	}
}

// TestTrustServer: without a trial deletions count as unconditional.
func TestTrustServer(t *testing.T) {
	s, err := New(site{"http://127.0.0.1/account/locks"}.client(t), &Options{TrustServer: true})
	if err != nil || !s.KeepsTokens() {
		t.Errorf("%v, %v", s, err)
	}
}

func TestOptions(t *testing.T) {
	here := site{"http://127.0.0.1/account/locks"}
	for what, c := range map[string]struct {
		url, prefix, says string
	}{
		"no slash":     {here.url, "no-slash", "azblobstore: prefix"},
		"a dot":        {here.url, "a/b./", "ends with a dot"},
		"no container": {"https://account.blob.core.windows.net/", "", "names no container"},
		"secondary":    {"https://account-secondary.blob.core.windows.net/locks?sig=secret", "", `use "account"`},
		"emulated":     {"http://127.0.0.1/account-secondary/locks", "", `use "account"`},
	} {
		_, err := New(site{c.url}.client(t), &Options{Prefix: c.prefix})
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := New(site{"https://account.blob.core.windows.net/my-secondary"}.client(t), nil); err != nil {
		t.Error(err)
	}
	if _, err := New(nil, nil); err == nil {
		t.Error("no client, no error")
	}
	s, err := New(here.client(t), nil)
	if err != nil || s.String() != "container locks prefix tenure/" {
		t.Errorf("%v, %v", s, err)
	}
}

// TestIdleConnectionsGo: a call without an answer closes the idle connections, since the
// network may have dropped them; a call with an answer does not.
func TestIdleConnectionsGo(t *testing.T) {
	u, err := url.Parse(at(answering(404, "BlobNotFound", "").Serve(t)).url)
	if err != nil {
		t.Fatal(err)
	}
	relay := enginetest.NewRelay(t, u.Host)
	u.Host = relay.Addr
	web := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	closed := 0
	s, err := New(site{u.String()}.clientWith(t, web), &Options{CloseIdleConnections: func() {
		closed++
		web.CloseIdleConnections()
	}})
	if err != nil {
		t.Fatal(err)
	}
	buckets.IdleConnectionsGo(t, relay, s, func() int { return closed })
}
