// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BucketFault is what is wrong with a [Bucket].
type BucketFault string

// What can be wrong.
const (
	// IgnoresConditions: each write is applied.
	IgnoresConditions BucketFault = "ignores conditions"
	// Races: it decides first, and writes a moment later.
	Races BucketFault = "races"
	// CreatesOnMatch: a write that is to replace a certain object creates an absent one.
	CreatesOnMatch BucketFault = "creates on If-Match"
	// KeepsTag: the ETag of an object never changes.
	KeepsTag BucketFault = "keeps the tag"
	// BusyEachSecond: each second write is refused because another one is under way.
	BusyEachSecond BucketFault = "busy each second time"
	// NoConditionalDelete: a deletion that depends on an ETag is refused.
	NoConditionalDelete BucketFault = "no conditional delete"
	// Fails500: writes are applied and answered with 500.
	Fails500 BucketFault = "fails after it has written"
)

// racePause is how long a bucket that races waits before it writes.
const racePause = 20 * time.Millisecond

// Bucket is a server of S3's protocol with one bucket, in memory: as much of it as Tenure
// uses, whoever asks. Conditional deletions are kept. One thing of it can be wrong.
type Bucket struct {
	// URL is that of the server, and Name that of the bucket.
	URL, Name string

	mu      sync.Mutex
	fault   BucketFault
	fails   func() bool // whether a write fails of Fails500; nil: each
	bodies  map[string]string
	counts  map[string]int
	writes  int
	configs map[string]string // by the name of a subresource, such as "lifecycle"
	denied  atomic.Bool
}

// NewBucket starts a server, which ends with the test.
func NewBucket(t testing.TB) *Bucket {
	t.Helper()
	b := &Bucket{Name: "locks", bodies: map[string]string{}, counts: map[string]int{}, configs: map[string]string{}}
	server := httptest.NewServer(b)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b.URL = server.URL
	return b
}

// Break has a fault begin, or end all with an empty one. A write fails of Fails500 if fails
// is nil or says so.
func (b *Bucket) Break(fault BucketFault, fails func() bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault, b.fails = fault, fails
}

// Deny refuses all requests, as without rights.
func (b *Bucket) Deny(deny bool) { b.denied.Store(deny) }

// Configure sets what is answered for a subresource of the bucket.
func (b *Bucket) Configure(name, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.configs[name] = text
}

// Counts returns how many requests of each method have come since the last call.
func (b *Bucket) Counts() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	counts := b.counts
	b.counts = map[string]int{}
	return counts
}

// Names returns the names of all objects, in order.
func (b *Bucket) Names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var names []string
	for name := range b.bodies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// ServeHTTP implements http.Handler.
func (b *Bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[r.Method]++
	switch {
	case b.denied.Load():
		refuse(w, http.StatusForbidden, "AccessDenied")
	case bucket != b.Name:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case name == "":
		b.serveBucket(w, r)
	case r.Method == http.MethodGet:
		b.get(w, name)
	case r.Method == http.MethodPut:
		b.put(w, r, name, string(body))
	case r.Method == http.MethodDelete:
		if is := b.tag(name); b.fault != NoConditionalDelete && r.Header.Get("If-Match") != "" && is != "" && is != r.Header.Get("If-Match") {
			refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
			return
		}
		if b.fault == NoConditionalDelete && r.Header.Get("If-Match") != "" {
			refuse(w, http.StatusNotImplemented, "NotImplemented")
			return
		}
		delete(b.bodies, name)
		w.WriteHeader(http.StatusNoContent)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of a test</Message></Error>", code)
}

func (b *Bucket) tag(name string) string {
	body, found := b.bodies[name]
	switch {
	case !found:
		return ""
	case b.fault == KeepsTag:
		return `"one"`
	}
	return fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(body)))
}

func (b *Bucket) get(w http.ResponseWriter, name string) {
	body, found := b.bodies[name]
	if !found {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", b.tag(name))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body) // the client may have gone
}

func (b *Bucket) put(w http.ResponseWriter, r *http.Request, name, body string) {
	b.writes++
	is, match, none := b.tag(name), r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case b.fault == BusyEachSecond && b.writes%2 == 1:
		refuse(w, http.StatusConflict, "ConditionalRequestConflict")
		return
	case b.fault == IgnoresConditions, b.fault == CreatesOnMatch && match != "" && is == "":
	case match != "" && is == "":
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	case match != "" && is != match, none == "*" && is != "":
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	if b.fault == Races {
		b.mu.Unlock()
		time.Sleep(racePause) //nolint:forbidigo // the fault itself
		b.mu.Lock()
	}
	b.bodies[name] = body
	if b.fault == Fails500 && (b.fails == nil || b.fails()) {
		refuse(w, http.StatusInternalServerError, "InternalError")
		return
	}
	w.Header().Set("ETag", b.tag(name))
}

// pageOfNames is how many names are listed at once.
const pageOfNames = 5

func (b *Bucket) serveBucket(w http.ResponseWriter, r *http.Request) {
	for name := range r.URL.Query() {
		if text, found := b.configs[name]; found {
			_, _ = io.WriteString(w, text) // as above
			return
		}
	}
	if !r.URL.Query().Has("list-type") {
		switch {
		case r.URL.Query().Has("lifecycle"):
			refuse(w, http.StatusNotFound, "NoSuchLifecycleConfiguration")
		case r.URL.Query().Has("object-lock"):
			refuse(w, http.StatusNotFound, "ObjectLockConfigurationNotFoundError")
		case r.URL.Query().Has("versioning"):
			_, _ = io.WriteString(w, "<VersioningConfiguration/>")
		}
		return
	}
	type content struct{ Key string }
	var out struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	prefix, after := r.URL.Query().Get("prefix"), r.URL.Query().Get("continuation-token")
	var names []string
	for name := range b.bodies {
		if strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names[:min(len(names), pageOfNames)] {
		out.Contents = append(out.Contents, content{name})
	}
	if len(names) > pageOfNames {
		out.IsTruncated, out.NextContinuationToken = true, names[pageOfNames-1]
	}
	_ = xml.NewEncoder(w).Encode(out) // as above
}
