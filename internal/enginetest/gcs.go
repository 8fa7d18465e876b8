// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// gcsCode has the code of an answer on its way to the translation.
const gcsCode = "X-Test-Code"

var gcsDialect = dialect{
	exists:        refusal{http.StatusPreconditionFailed, "conditionNotMet"},
	mismatch:      refusal{http.StatusPreconditionFailed, "conditionNotMet"},
	absentOnMatch: refusal{http.StatusPreconditionFailed, "conditionNotMet"},
	absent:        refusal{http.StatusNotFound, "notFound"},
	busy:          refusal{http.StatusTooManyRequests, "rateLimitExceeded"},
	noBucket:      refusal{http.StatusNotFound, "notFound"},
	denied:        refusal{http.StatusForbidden, "forbidden"},
	failed:        refusal{http.StatusInternalServerError, "backendError"},
	codeHeader:    gcsCode,
	written:       http.StatusOK,
	deleted:       http.StatusNoContent,
	serialTags:    true,
	serveBucket:   (*Bucket).serveGCS,
}

// GCSBucket is a [Bucket] for the protocol of Google Cloud Storage, as its client for HTTP
// speaks it. Tags are generations.
type GCSBucket struct {
	*Bucket

	mu      sync.Mutex
	limited bool
	refused int
	last    map[string]time.Time // of the writes of each object
	cache   string               // what the last write said of caches
}

// NewGCSBucket starts a server, which ends with the test.
func NewGCSBucket(t testing.TB) *GCSBucket {
	t.Helper()
	g := &GCSBucket{Bucket: bucketOf(gcsDialect), last: map[string]time.Time{}}
	g.URL = serve(t, g)
	return g
}

// LimitWrites has a second write of an object within a second answered with 429, as the real
// one does, or not any more.
func (g *GCSBucket) LimitWrites(limit bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limited = limit
}

// Refused returns how many writes were answered so since the last call.
func (g *GCSBucket) Refused() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.refused
	g.refused = 0
	return n
}

// CacheControl returns what the last write said of caches.
func (g *GCSBucket) CacheControl() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cache
}

// tooSoon reports whether an object was written within the last second, and notes the write
// if not.
func (g *GCSBucket) tooSoon(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if last, found := g.last[name]; g.limited && found && now.Sub(last) < time.Second {
		g.refused++
		return true
	}
	g.last[name] = now
	return false
}

// ServeHTTP implements http.Handler: it asks the bucket in its own words.
func (g *GCSBucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	method, path, body := r.Method, r.URL.Path, []byte(nil)
	bucket, list := strings.CutPrefix(path, "/storage/v1/b/")
	condition := r.URL.Query().Get("ifGenerationMatch")
	switch upload, ok := strings.CutPrefix(path, "/upload/storage/v1/b/"); {
	case ok:
		attrs, media, err := uploaded(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		g.mu.Lock()
		g.cache = attrs.CacheControl
		g.mu.Unlock()
		if g.tooSoon(attrs.Name) {
			GCSError(w, gcsDialect.busy.status, gcsDialect.busy.code)
			return
		}
		method, path, body = http.MethodPut, "/"+strings.TrimSuffix(upload, "/o")+"/"+attrs.Name, media
	case list && method == http.MethodGet:
		path = "/" + strings.TrimSuffix(bucket, "/o")
	case list:
		path = "/" + strings.Replace(bucket, "/o/", "/", 1)
	}
	inner := r.Clone(r.Context())
	inner.Method, inner.URL.Path, inner.Body = method, path, io.NopCloser(strings.NewReader(string(body)))
	switch condition {
	case "":
	case "0":
		inner.Header.Set("If-None-Match", "*")
	default:
		n, _ := strconv.Atoi(condition) // 0 matches nothing
		inner.Header.Set("If-Match", tagOfSerial(n))
		if g.has(KeepsTag) {
			inner.Header.Set("If-Match", keptTag)
		}
	}
	answer := httptest.NewRecorder()
	g.Bucket.ServeHTTP(answer, inner)
	generation := answer.Header().Get("ETag")
	if generation == keptTag {
		generation = "1"
	} else if n, err := strconv.ParseInt(strings.Trim(generation, `"`), 0, 64); err == nil {
		generation = strconv.FormatInt(n, 10)
	}
	if method == http.MethodPut && answer.Code == http.StatusOK {
		answer.Body.WriteString(`{"generation":"` + generation + `"}`)
	}
	w.Header().Set("X-Goog-Generation", generation)
	g.answer(w, answer)
}

// answer passes an answer on. Errors are JSON.
func (g *GCSBucket) answer(w http.ResponseWriter, answer *httptest.ResponseRecorder) {
	code := answer.Header().Get(gcsCode)
	if code == "" {
		w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
		w.WriteHeader(answer.Code)
		_, _ = answer.Body.WriteTo(w) // the client may have gone
		return
	}
	GCSError(w, answer.Code, code)
}

// GCSError answers with an error of Google Cloud Storage.
func GCSError(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":"of a test","errors":[{"reason":%q,"message":"of a test"}]}}`, status, reason)
}

// attributes are what an upload says of its object.
type attributes struct{ Name, CacheControl, CRC32C string }

// uploaded reads an upload of two parts, of which the first has a checksum of the second.
func uploaded(r *http.Request) (of attributes, media []byte, err error) {
	_, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return of, nil, err
	}
	parts := multipart.NewReader(r.Body, params["boundary"])
	first, err := parts.NextPart()
	if err == nil {
		err = json.NewDecoder(first).Decode(&of)
	}
	if err != nil {
		return of, nil, err
	}
	second, err := parts.NextPart()
	if err == nil {
		media, err = io.ReadAll(second)
	}
	sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(media, crc32.MakeTable(crc32.Castagnoli)))
	if want := base64.StdEncoding.EncodeToString(sum); err == nil && of.CRC32C != want {
		err = fmt.Errorf("the checksum is %q, that of what has come %q", of.CRC32C, want)
	}
	return of, media, err
}

// serveGCS answers a list.
func (b *Bucket) serveGCS(w http.ResponseWriter, r *http.Request) {
	type item struct {
		Name string `json:"name"`
	}
	var out struct {
		Items []item `json:"items,omitempty"`
		Next  string `json:"nextPageToken,omitempty"`
	}
	names, next := b.page(r.URL.Query().Get("prefix"), r.URL.Query().Get("pageToken"))
	for _, name := range names {
		out.Items = append(out.Items, item{name})
	}
	out.Next = next
	_ = json.NewEncoder(w).Encode(out) // the client may have gone
}
