// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// later is what a later version of Tenure adds to a record.
const later = `,"later":"kept"`

// bucket keeps objects in memory as S3 does: the tag is a hash of the body. It can have one
// bug.
type bucket struct {
	fault       string
	plainDelete bool

	mu      sync.Mutex
	bodies  map[string]string
	late    []func() // duplicates that come later
	held    chan struct{}
	serial  int
	puts    int
	gets    int
	deletes int
	lists   int
}

func newBucket(fault string) *bucket { return &bucket{fault: fault, bodies: map[string]string{}} }

func (b *bucket) is(fault string) bool { return b.fault == fault }

// handle is what a client has of a bucket.
type handle struct {
	*bucket
	// unlucky loses requests and replies, and delays and duplicates requests.
	unlucky bool
}

var versionMember = regexp.MustCompile(`"version":"[^"]*",`)

var errLost = errors.New("lost")

func (b *bucket) tagOf(name string) string {
	body, found := b.bodies[name]
	if !found {
		return ""
	}
	switch {
	case b.is("keeps the tag"):
		return `"one"`
	case b.is("tag without the version"):
		// As if a store kept the version outside of the body, which is what the tag covers.
		body = versionMember.ReplaceAllString(body, "")
	}
	sum := sha256.Sum256([]byte(body))
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// begin waits while the bucket hangs, and sometimes delivers late requests.
func (b *bucket) begin(ctx context.Context) error {
	b.mu.Lock()
	held := b.held
	b.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.mu.Lock()
	if b.serial++; len(b.late) > 0 && b.serial%5 == 0 {
		b.late[0]()
		b.late = b.late[1:]
	}
	return nil
}

func (b *bucket) Get(ctx context.Context, name string) (body []byte, tag string, err error) {
	if err := b.begin(ctx); err != nil {
		return nil, "", err
	}
	defer b.mu.Unlock()
	b.gets++
	text, found := b.bodies[name]
	if !found {
		return nil, "", driver.ErrNotFound
	}
	if b.is("reads what is damaged as zero") && !strings.Contains(text, `"owner"`) {
		text = recordcodec.Encode(driver.Record{Key: "list/b", Version: "v", Owner: "o", Token: 1, Lease: 1, State: driver.Held})
	}
	return []byte(text), b.tagOf(name), nil
}

func (h *handle) Get(ctx context.Context, name string) (body []byte, tag string, err error) {
	if h.unlucky && rand.IntN(20) == 0 {
		return nil, "", errLost
	}
	return h.bucket.Get(ctx, name)
}

// put writes under a condition. It is called under the mutex.
func (b *bucket) put(name, body, tag string) (string, error) {
	was := b.tagOf(name)
	switch {
	case was == tag, b.is("ignores conditions"):
	case was == "" && b.is("creates on If-Match"):
	default:
		return "", objectmap.ErrMismatch
	}
	switch {
	case b.is("drops what is unknown"), b.is("drops what is unknown at a raise") && strings.Contains(body, `"end":"raised"`):
		body = strings.Replace(body, later, "", 1)
	case b.is("rests as it holds"):
		body = strings.Replace(body, `"state":"resting"`, `"state":"held"`, 1)
	}
	b.bodies[name] = body
	return b.tagOf(name), nil
}

func (h *handle) Put(ctx context.Context, name string, body []byte, tag string) (string, error) {
	if err := h.begin(ctx); err != nil {
		return "", err
	}
	defer h.mu.Unlock()
	h.puts++
	text := string(body)
	if h.is("doubles") && h.puts%2 == 1 {
		return "", objectmap.ErrBusy
	}
	if h.is("loses requests") {
		return "", errLost
	}
	again := func() { _, _ = h.put(name, text, tag) }
	if h.unlucky {
		switch rand.IntN(12) {
		case 0: // the request is lost
			return "", errLost
		case 1: // the reply is
			again()
			return "", errLost
		case 2: // it comes when its sender does not wait any more
			h.late = append(h.late, again)
			return "", errLost
		case 3:
			return "", objectmap.ErrBusy
		}
	}
	newTag, err := h.put(name, text, tag)
	if h.is("loses replies") {
		return "", errLost
	}
	if h.is("doubles") {
		again()
		if tag != "" || !strings.Contains(name, "tenure%2F") {
			// The claim of a session, or of the history, would bring the removed object
			// back. No process believes in it: see drivertest.
			h.late = append(h.late, again)
		}
	}
	return newTag, err
}

func (h *handle) Delete(ctx context.Context, name, tag string) error {
	if err := h.begin(ctx); err != nil {
		return err
	}
	defer h.mu.Unlock()
	h.deletes++
	if was := h.tagOf(name); was != "" && tag != "" && was != tag && !h.plainDelete {
		return objectmap.ErrMismatch
	}
	delete(h.bodies, name)
	return nil
}

// Names answers in a bad order, three at a time.
func (h *handle) Names(ctx context.Context, prefix, cursor string) (names []string, next string, err error) {
	if err := h.begin(ctx); err != nil {
		return nil, "", err
	}
	defer h.mu.Unlock()
	h.lists++
	for name := range h.bodies {
		if strings.HasPrefix(name, prefix) && (cursor == "" || name < cursor) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	if len(names) > 3 {
		names, next = names[:3], names[2]
	}
	return names, next, nil
}

func (h *handle) Close() error { return nil }

// hang has the bucket answer nothing until resume is called.
func (b *bucket) hang() (resume func()) {
	held := make(chan struct{})
	set := func(c chan struct{}) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held = c
	}
	set(held)
	return func() {
		set(nil)
		close(held)
	}
}

// requests returns how many there were since the last call.
func (b *bucket) requests() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := ""
	for _, kind := range []struct {
		name string
		n    *int
	}{{"GET", &b.gets}, {"PUT", &b.puts}, {"DELETE", &b.deletes}, {"LIST", &b.lists}} {
		if *kind.n > 0 {
			text += fmt.Sprintf(" %d %s", *kind.n, kind.name)
		}
		*kind.n = 0
	}
	return strings.TrimSpace(text)
}
