// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

const (
	// pageSize is how many records List returns at once.
	pageSize = 200
	// chunkSize is how many objects it asks for at once.
	chunkSize = 500
	// maxReads bounds how often one call reads a record whose parts disappear meanwhile.
	maxReads = 3
)

// leaseList is an answer to a list.
type leaseList struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		Continue        string `json:"continue"`
	} `json:"metadata"`
	Items []v1.Lease `json:"items"`
}

// Get returns the record of key. A strong read is a quorum read of etcd. An
// eventual read is answered from the cache of the API server, which may lag
// behind.
func (s *Store) Get(ctx context.Context, key string, c driver.Consistency) (driver.Record, error) {
	is, err := s.read(ctx, key, c)
	if err != nil {
		return driver.Record{}, err
	}
	return versioned.RecordOf(is)
}

// read returns the state of a record.
func (s *Store) read(ctx context.Context, key string, c driver.Consistency) (state, error) {
	if err := s.life.Ready(ctx); err != nil {
		return state{}, driver.NotApplied(err)
	}
	ctx, done := s.life.Bound(ctx)
	defer done()
	is, err := s.readAll(ctx, key, c)
	if err != nil {
		return state{}, driver.NotApplied(err) // nothing was to be written
	}
	if is.found() || c == driver.Strong {
		s.known.Note(key, is)
	}
	return is, nil
}

func (s *Store) readAll(ctx context.Context, key string, c driver.Consistency) (state, error) {
	var before string // the state whose part was missing
	for range maxReads {
		var query url.Values
		if c == driver.Eventual {
			query = url.Values{"resourceVersion": {"0"}}
		}
		var o v1.Lease
		switch err := s.calls.get(ctx, leases, s.namespace, s.object(key), query, &o); {
		case apierrors.IsNotFound(err):
			return state{}, nil
		case err != nil:
			return state{}, s.failed(err)
		}
		is := s.decode(key, &o)
		gone, err := s.complete(ctx, key, &is)
		switch {
		case err == nil:
			return s.judged(key, is), nil
		case !gone:
			return state{}, err
		case is.rev == before && c == driver.Strong:
			is.err = fmt.Errorf("a part of it is gone: %v", err) //nolint:errorlint // the Lease is there
			return s.judged(key, is), nil
		}
		before, c = is.rev, driver.Strong // its part was removed meanwhile, by the write that has replaced it
	}
	return state{}, fmt.Errorf("lease %s/%s changes faster than it can be read: try again", s.namespace, s.object(key))
}

// judged returns a state whose error names its Lease.
func (s *Store) judged(key string, is state) state {
	if is.err != nil {
		is.rec, is.err = driver.Record{}, s.unreadable(key, is.err)
	}
	return is
}

// List returns the records whose key begins with prefix and comes after cursor. Each page
// reads all Leases of its kind (locks, sessions, history), because Kubernetes orders them
// by the names of objects. Records that are created or deleted between two pages may or
// may not be seen.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	if err := s.life.Ready(ctx); err != nil {
		return driver.Page{}, driver.NotApplied(err)
	}
	ctx, done := s.life.Bound(ctx)
	defer done()
	page, err := s.list(ctx, prefix, cursor)
	if err != nil {
		return driver.Page{}, driver.NotApplied(err)
	}
	return page, nil
}

func (s *Store) list(ctx context.Context, prefix, cursor string) (page driver.Page, err error) {
	found := map[string]*v1.Lease{}
	if err := s.each(ctx, prefix, func(o *v1.Lease) {
		if key := s.keyOf(o); key != "" && strings.HasPrefix(key, prefix) && (cursor == "" || key > cursor) {
			found[key] = o
		}
	}); err != nil {
		return page, err
	}
	keys := make([]string, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if len(keys) > s.page {
		keys = keys[:s.page]
		page.Cursor = keys[len(keys)-1]
	}
	for _, key := range keys {
		is := s.decode(key, found[key])
		if gone, err := s.complete(ctx, key, &is); gone {
			if is, err = s.readAll(ctx, key, driver.Strong); err != nil {
				return page, err
			}
		} else if err != nil {
			return page, err
		} else {
			is = s.judged(key, is)
		}
		versioned.AddTo(&page, key, is)
	}
	return page, nil
}

// each calls do with all Leases that may have a key with the prefix.
func (s *Store) each(ctx context.Context, prefix string, do func(*v1.Lease)) error {
	kind, from := kindsOf(prefix), ""
	for {
		query := url.Values{"limit": {strconv.Itoa(chunkSize)}}
		switch {
		case s.options.SharedLease && (kind == "" || kind == kindLock): // others put no labels on theirs
		case kind != "":
			query.Set("labelSelector", labelStore+"="+s.label()+","+labelKind+"="+kind)
		default:
			query.Set("labelSelector", labelStore+"="+s.label())
		}
		if from != "" {
			query.Set("continue", from)
		}
		var list leaseList
		if err := s.calls.get(ctx, leases, s.namespace, "", query, &list); err != nil {
			return s.failed(err)
		}
		for i := range list.Items {
			do(&list.Items[i])
		}
		if from = list.Metadata.Continue; from == "" {
			return nil
		}
	}
}

// keyOf returns the key of a Lease, empty if it is not this store's.
func (s *Store) keyOf(o *v1.Lease) string {
	key, ok := o.Annotations[noteKey]
	if !ok {
		if key = o.Name; !s.shared(key) {
			key = strings.TrimPrefix(key, s.options.Prefix)
		}
	}
	if s.object(key) != o.Name {
		if ok || o.Labels[labelStore] != s.label() || !strings.HasPrefix(o.Name, s.options.Prefix) {
			return ""
		}
		key = o.Name // its key was removed, and nothing else names it
	}
	return key
}
