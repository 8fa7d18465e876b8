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

// Bucket is a server with one bucket, in memory: as much of its protocol as Tenure uses,
// whoever asks. Conditional deletions are kept. One thing of it can be wrong.
type Bucket struct {
	// URL is that of the server, and Name that of the bucket.
	URL, Name string

	speaks dialect

	mu      sync.Mutex
	busy    refusal // of BusyEachSecond
	fault   BucketFault
	fails   func() bool // whether a write fails of Fails500; nil: each
	bodies  map[string]string
	serials map[string]int // the writes up to the last of each object
	counts  map[string]int
	writes  int
	configs map[string]string // by the name of a subresource, such as "lifecycle"
	denied  atomic.Bool
}

// refusal is an answer that nothing was done.
type refusal struct {
	status int
	code   string
}

// dialect is what differs between protocols.
type dialect struct {
	root string // the path of all buckets, without the slash at its beginning
	// What is answered to a write whose object is there, has another tag, or is absent; to
	// one while another is under way; and of a bucket that is not there, or forbidden.
	exists, mismatch, absentOnMatch, absent, busy, noBucket, denied refusal
	failed                                                          refusal
	codeHeader                                                      string // has the code as well
	written, deleted                                                int
	serialTags                                                      bool // tags are new with each write, not of the body
	serveBucket                                                     func(*Bucket, http.ResponseWriter, *http.Request)
}

var s3Dialect = dialect{
	exists:        refusal{http.StatusPreconditionFailed, "PreconditionFailed"},
	mismatch:      refusal{http.StatusPreconditionFailed, "PreconditionFailed"},
	absentOnMatch: refusal{http.StatusNotFound, "NoSuchKey"},
	absent:        refusal{http.StatusNotFound, "NoSuchKey"},
	busy:          refusal{http.StatusConflict, "ConditionalRequestConflict"},
	noBucket:      refusal{http.StatusNotFound, "NoSuchBucket"},
	denied:        refusal{http.StatusForbidden, "AccessDenied"},
	failed:        refusal{http.StatusInternalServerError, "InternalError"},
	written:       http.StatusOK,
	deleted:       http.StatusNoContent,
	serveBucket:   (*Bucket).serveBucket,
}

// NewBucket starts a server of S3's protocol, which ends with the test.
func NewBucket(t testing.TB) *Bucket {
	t.Helper()
	return newBucket(t, s3Dialect)
}

func newBucket(t testing.TB, speaks dialect) *Bucket {
	t.Helper()
	b := &Bucket{
		Name: "locks", speaks: speaks, busy: speaks.busy,
		bodies: map[string]string{}, serials: map[string]int{}, counts: map[string]int{}, configs: map[string]string{},
	}
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

// BreakBusy has BusyEachSecond begin, with an answer of a status and a code.
func (b *Bucket) BreakBusy(status int, code string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault, b.busy = BusyEachSecond, refusal{status, code}
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
	bucket, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"+b.speaks.root), "/")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.counts[r.Method]++
	switch {
	case b.denied.Load():
		b.refuse(w, b.speaks.denied)
	case bucket != b.Name:
		b.refuse(w, b.speaks.noBucket)
	case name == "":
		b.speaks.serveBucket(b, w, r)
	case r.Method == http.MethodGet:
		b.get(w, name)
	case r.Method == http.MethodPut:
		b.put(w, r, name, string(body))
	case r.Method == http.MethodDelete:
		if is := b.tag(name); b.fault != NoConditionalDelete && r.Header.Get("If-Match") != "" && is != "" && is != r.Header.Get("If-Match") {
			b.refuse(w, b.speaks.mismatch)
			return
		}
		if b.fault == NoConditionalDelete && r.Header.Get("If-Match") != "" {
			b.refuse(w, refusal{http.StatusNotImplemented, "NotImplemented"})
			return
		}
		delete(b.bodies, name)
		w.WriteHeader(b.speaks.deleted)
	default:
		b.refuse(w, refusal{http.StatusMethodNotAllowed, "MethodNotAllowed"})
	}
}

func (b *Bucket) refuse(w http.ResponseWriter, r refusal) {
	w.Header().Set("Content-Type", "application/xml")
	if b.speaks.codeHeader != "" {
		w.Header().Set(b.speaks.codeHeader, r.code)
	}
	w.WriteHeader(r.status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>of a test</Message></Error>", r.code)
}

func (b *Bucket) tag(name string) string {
	body, found := b.bodies[name]
	switch {
	case !found:
		return ""
	case b.fault == KeepsTag:
		return `"one"`
	case b.speaks.serialTags:
		return fmt.Sprintf(`"0x%X"`, b.serials[name])
	}
	return fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(body)))
}

func (b *Bucket) get(w http.ResponseWriter, name string) {
	body, found := b.bodies[name]
	if !found {
		b.refuse(w, b.speaks.absent)
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
		b.refuse(w, b.busy)
		return
	case b.fault == IgnoresConditions, b.fault == CreatesOnMatch && match != "" && is == "":
	case match != "" && is == "":
		b.refuse(w, b.speaks.absentOnMatch)
		return
	case match != "" && is != match:
		b.refuse(w, b.speaks.mismatch)
		return
	case none == "*" && is != "":
		b.refuse(w, b.speaks.exists)
		return
	}
	if b.fault == Races {
		b.mu.Unlock()
		time.Sleep(racePause) //nolint:forbidigo // the fault itself
		b.mu.Lock()
	}
	b.bodies[name], b.serials[name] = body, b.writes
	if b.fault == Fails500 && (b.fails == nil || b.fails()) {
		b.refuse(w, b.speaks.failed)
		return
	}
	w.Header().Set("ETag", b.tag(name))
	w.WriteHeader(b.speaks.written)
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
			b.refuse(w, refusal{http.StatusNotFound, "NoSuchLifecycleConfiguration"})
		case r.URL.Query().Has("object-lock"):
			b.refuse(w, refusal{http.StatusNotFound, "ObjectLockConfigurationNotFoundError"})
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
	names, next := b.page(r.URL.Query().Get("prefix"), r.URL.Query().Get("continuation-token"))
	for _, name := range names {
		out.Contents = append(out.Contents, content{name})
	}
	out.IsTruncated, out.NextContinuationToken = next != "", next
	_ = xml.NewEncoder(w).Encode(out) // as above
}

// page returns some names that begin with prefix, after one, and the last of them if there
// are more.
func (b *Bucket) page(prefix, after string) (names []string, next string) {
	for name := range b.bodies {
		if strings.HasPrefix(name, prefix) && name > after {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > pageOfNames {
		names = names[:pageOfNames]
		next = names[pageOfNames-1]
	}
	return names, next
}
