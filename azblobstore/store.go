// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/objectmap"
)

// DefaultPrefix begins the names of a store whose options name no prefix.
const DefaultPrefix = objectmap.DefaultPrefix

// Options are for one store. Nil means the defaults.
type Options struct {
	// Prefix begins the names of all blobs of the store: "tenure/" if empty. Stores with different
	// prefixes have different locks. It ends with a slash, does not begin with one, and has at most
	// 100 letters, digits, and characters of _ . - /; no part of it is empty, or begins or ends
	// with a dot, and only the first may be r or h. No other program may write below it, and no
	// rule of lifecycle management may remove or move its blobs.
	Prefix string

	// TrustServer says that the server is known to keep If-Match and If-None-Match, as
	// Azure does, so that the store does not test it before its first write: it saves 8
	// requests, and the right to delete. On a server that does not keep them two processes
	// can hold one lock. With TrustServer a deleted lock leaves a blob that keeps its
	// token.
	TrustServer bool

	// PageSize is how many records List returns at once: 200 if zero.
	PageSize int

	// CloseIdleConnections is called after a call that got no answer, at most once a
	// second, and by Close. Pass the method of the *http.Client that is the client's
	// Transport. The network between a program and its container may drop connections
	// silently, and each call on such a connection waits until its timeout: with several of
	// them in the pool a lease may end. If nil, they stay.
	CloseIdleConnections func()
}

// Store keeps records in a container. It implements [driver.Store], [driver.Raiser] and
// [driver.TokenRetainer]. All methods may be called concurrently.
type Store struct {
	*objectmap.Store
	container string
}

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.Raiser        = (*Store)(nil)
	_ driver.TokenRetainer = (*Store)(nil)
)

// New returns a store in the container of a client of the program's own, which must outlive
// it. It sends nothing: the first write tries the server. Options may be nil.
//
// The client's credential, transport and policies are used as they are. Its settings for
// retries are not: each call is one request, or two if the server refuses the first and
// asks for another token of the credential. A client of the secondary location is an error:
// its reads may be stale.
func New(client *container.Client, options *Options) (*Store, error) {
	var o Options
	if options != nil {
		o = *options
	}
	objects, err := newObjects(client, o.CloseIdleConnections)
	if err != nil {
		return nil, err
	}
	if strings.Contains(o.Prefix, "./") {
		return nil, fmt.Errorf("azblobstore: prefix %.120q: a part of it ends with a dot, which Azure drops", o.Prefix)
	}
	inner, err := objectmap.New(objects, &objectmap.Options{Prefix: o.Prefix, Trust: o.TrustServer, PageSize: o.PageSize})
	if err != nil {
		return nil, fmt.Errorf("azblobstore: %w", err)
	}
	return &Store{Store: inner, container: objects.container}, nil
}

// Open is [New] for a container that must exist, on a server that must be sound: it tries
// the server at once, by 8 requests, 5 of them writes, so that it reports a wrong name, a
// missing permission and a server that does not keep the conditions of writes. With
// TrustServer it reads once. Options may be nil.
func Open(ctx context.Context, client *container.Client, options *Options) (*Store, error) {
	s, err := New(client, options)
	if err != nil {
		return nil, err
	}
	if err := s.Reach(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// String names the store by its container and prefix.
func (s *Store) String() string { return "container " + s.container + " prefix " + s.Prefix() }

// newObjects returns the objects of a client, whose URL may contain a signature.
func newObjects(client *container.Client, dropIdle func()) (*objects, error) {
	if client == nil {
		return nil, errors.New("azblobstore: the client is nil")
	}
	u, err := url.Parse(client.URL())
	if err != nil {
		return nil, errors.New("azblobstore: the client's URL cannot be read")
	}
	account, _, _ := strings.Cut(u.Host, ".")
	if first, _, two := strings.Cut(strings.Trim(u.Path, "/"), "/"); two {
		account = first // as emulators have it
	}
	switch {
	case strings.Trim(u.Path, "/") == "":
		return nil, fmt.Errorf("azblobstore: the client's URL, of %q, names no container: write https://ACCOUNT.blob.core.windows.net/CONTAINER", u.Host)
	case strings.HasSuffix(account, "-secondary"):
		return nil, fmt.Errorf("azblobstore: %q is the secondary location of an account, whose reads may be stale: two processes could hold one lock; use %q", account, strings.TrimSuffix(account, "-secondary"))
	}
	return &objects{client: client, host: u.Host, container: path.Base(u.Path), Idle: objectmap.NewIdle(dropIdle)}, nil
}
