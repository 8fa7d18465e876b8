// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BucketFault is a fault of a [Bucket].
type BucketFault string

// What can be wrong.
const (
	// IgnoresConditions: each write is applied.
	IgnoresConditions BucketFault = "ignores conditions"
	// Races: it decides first, and writes a moment later.
	Races BucketFault = "races"
	// NoConditionalDelete: a deletion that depends on an ETag is refused.
	NoConditionalDelete BucketFault = "no conditional delete"
	// DeniesAll: all requests are refused, as without rights.
	DeniesAll BucketFault = "denies all"
)

const (
	racePause    = 20 * time.Millisecond // of a bucket that races
	namesOnAPage = 5
)

// Bucket is a server of S3's protocol with one bucket, in memory: as much of the protocol as
// Tenure uses, without authentication. Deletions keep their conditions.
type Bucket struct {
	// URL is the URL of the server, and Name the name of the bucket.
	URL, Name string

	mu      sync.Mutex
	fault   BucketFault
	bodies  map[string]string
	counts  map[string]int
	configs map[string]string // by the name of a subresource, such as "lifecycle"
}

// NewBucket starts a server, which ends with the test.
func NewBucket(t testing.TB) *Bucket {
	t.Helper()
	b := &Bucket{Name: "locks", bodies: map[string]string{}, counts: map[string]int{}, configs: map[string]string{
		"versioning": "<VersioningConfiguration/>",
	}}
	server := httptest.NewServer(b)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	b.URL = server.URL
	return b
}

// Break begins a fault, instead of any other. An empty one ends it.
func (b *Bucket) Break(fault BucketFault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault = fault
}

// Configure sets the answer for a subresource of the bucket.
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
	return slices.Sorted(maps.Keys(b.bodies))
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
	case b.fault == DeniesAll:
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
		b.delete(w, r, name)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of a test</Message></Error>", code)
}

func (b *Bucket) tag(name string) string {
	body, found := b.bodies[name]
	if !found {
		return ""
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
	is, match, none := b.tag(name), r.Header.Get("If-Match"), r.Header.Get("If-None-Match")
	switch {
	case b.fault == IgnoresConditions:
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
	w.Header().Set("ETag", b.tag(name))
}

func (b *Bucket) delete(w http.ResponseWriter, r *http.Request, name string) {
	is, match := b.tag(name), r.Header.Get("If-Match")
	switch {
	case match != "" && b.fault == NoConditionalDelete:
		refuse(w, http.StatusNotImplemented, "NotImplemented")
	case match != "" && is != "" && is != match:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		delete(b.bodies, name)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (b *Bucket) serveBucket(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	for name := range query {
		if text, found := b.configs[name]; found {
			_, _ = io.WriteString(w, text) // the client may have gone
			return
		}
	}
	switch {
	case query.Has("lifecycle"):
		refuse(w, http.StatusNotFound, "NoSuchLifecycleConfiguration")
	case query.Has("object-lock"):
		refuse(w, http.StatusNotFound, "ObjectLockConfigurationNotFoundError")
	case query.Has("list-type"):
		b.list(w, query.Get("prefix"), query.Get("continuation-token"))
	}
}

func (b *Bucket) list(w io.Writer, prefix, after string) {
	type content struct{ Key string }
	var page struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	for _, name := range slices.Sorted(maps.Keys(b.bodies)) {
		if !strings.HasPrefix(name, prefix) || name <= after {
			continue
		}
		if len(page.Contents) == namesOnAPage {
			page.IsTruncated, page.NextContinuationToken = true, page.Contents[namesOnAPage-1].Key
			break
		}
		page.Contents = append(page.Contents, content{name})
	}
	_ = xml.NewEncoder(w).Encode(page) // the client may have gone
}
