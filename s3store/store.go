// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
)

// DefaultPrefix begins the names of a store whose options name no prefix.
const DefaultPrefix = objectmap.DefaultPrefix

// Options are for one store. Nil means the defaults.
type Options struct {
	// Prefix begins the names of all objects of the store: "tenure/" if empty. Stores with
	// different prefixes have different locks. It ends with a slash, does not begin with
	// one, and has at most 100 letters, digits, and characters of _ . - /. No part of it is
	// empty or begins with a dot, and only the first may be r or h. No other program may
	// write below it, and no lifecycle rule may remove what is there.
	Prefix string

	// TrustServer says that the server is known to keep If-Match and If-None-Match, so
	// that the store does not test it before its first write: it saves 8 requests, and
	// the right to delete. On a server that does not keep them two processes can hold one
	// lock. With TrustServer a deleted lock leaves an object that keeps its token.
	TrustServer bool

	// PageSize is how many records List returns at once: 200 if zero.
	PageSize int
}

// Store keeps records in a bucket. It implements [driver.Store], [driver.Raiser] and
// [driver.TokenRetainer]. All methods may be called concurrently.
type Store struct {
	*objectmap.Store
	objects *objects
	bucket  string
	trusts  bool // no process tries the server
}

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.Raiser        = (*Store)(nil)
	_ driver.TokenRetainer = (*Store)(nil)
	_ driver.Diagnoser     = (*Store)(nil)
	_ driver.Granter       = (*Store)(nil)
)

// New returns a store in a bucket, on a client of the program's own, which must outlive it.
// It sends nothing: the first write tries the server. Options may be nil.
//
// The client's credentials, region and endpoint are used as they are. Its retries and its
// checksums are not: each call is one request, whose body the signature covers. An HTTP
// client that the SDK has built is replaced by a client with the same settings, whose idle
// connections are closed after a call that got no answer.
func New(client *s3.Client, bucket string, options *Options) (*Store, error) {
	switch {
	case client == nil:
		return nil, errors.New("s3store: the client is nil")
	case bucket == "":
		return nil, errors.New("s3store: the bucket has no name")
	}
	var o Options
	if options != nil {
		o = *options
	}
	own := newObjects(client, bucket)
	inner, err := objectmap.New(own, &objectmap.Options{Prefix: o.Prefix, Trust: o.TrustServer, PageSize: o.PageSize})
	if err != nil {
		return nil, fmt.Errorf("s3store: %w", err)
	}
	return &Store{Store: inner, objects: own, bucket: bucket, trusts: o.TrustServer}, nil
}

// Open is [New] for a bucket that must exist, on a server that must be sound: it tries the
// server at once, by 8 requests, 5 of them writes, so that it reports a wrong name, a missing
// permission and a server that does not keep the conditions of writes. With TrustServer it
// reads once. Options may be nil.
func Open(ctx context.Context, client *s3.Client, bucket string, options *Options) (*Store, error) {
	s, err := New(client, bucket, options)
	if err != nil {
		return nil, err
	}
	if err := s.Reach(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// String names the store by its bucket and prefix.
func (s *Store) String() string { return "bucket " + s.bucket + " prefix " + s.Prefix() }
