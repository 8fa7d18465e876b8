// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

// Description is what the servers say of themselves, and of the place of the records.
type Description struct {
	// Session is the session timeout that a server has granted.
	Session time.Duration
	// Voters is how many servers vote, most of which a write needs. It is 0 if that is
	// not told: a server that stands alone does not tell, and nor does one whose node
	// /zookeeper/config this user may not read.
	Voters int
	// Exists says that the root is there.
	Exists bool
	// Denied is why nothing can be made below the root, or the root itself if it is not
	// there; nil if it can. It has the text of the store's errors.
	Denied error
	// Open says that anyone who reaches the servers may change the root, or the records
	// that this store makes.
	Open bool
	// Short says that a server ends the connection at a request of 1 MB, which it takes
	// by default: its jute.maxbuffer is lower.
	Short bool
}

// never is a version that no node has.
const never = math.MaxInt32

// Describe asks the servers. It leaves nothing behind: what it tries to write are
// transactions of which one condition cannot hold. The error says that nothing is known.
func Describe(ctx context.Context, hosts []string, options *Options) (d Description, err error) {
	s, err := New(hosts, options)
	if err != nil {
		return d, err
	}
	defer s.Close() //nolint:errcheck // it returns nil
	replies, err := s.ask(ctx, wire.Sync(s.root), wire.GetACL(s.root), wire.GetData("/zookeeper/config"))
	if err != nil {
		return d, err
	}
	d.Session = s.client.Session()
	d.Open = s.acl.Scheme == "world"
	switch code := replies[1].Code; code {
	case wire.OK:
		acl, err := replies[1].ACL()
		if err != nil {
			return d, s.failed(err)
		}
		d.Exists = true
		for _, a := range acl {
			d.Open = d.Open || a.Scheme == "world" && a.Perms&^wire.PermRead != 0
		}
	case wire.NoNode:
	case wire.NoAuth:
		d.Exists = true
	default:
		return d, s.refused(code)
	}
	if data, _, err := replies[2].Data(); replies[2].Code == wire.OK && err == nil {
		d.Voters = voters(string(data))
	}
	if d.Denied, err = s.denied(ctx, d.Exists); err != nil {
		return d, err
	}
	d.Short, err = s.short(ctx)
	return d, err
}

// voters counts the servers that vote, of a configuration with lines such as
// server.1=HOST:PORT:PORT:participant;HOST:PORT.
func voters(config string) (n int) {
	for line := range strings.SplitSeq(config, "\n") {
		name, value, _ := strings.Cut(line, "=")
		address, _, _ := strings.Cut(value, ";")
		if strings.HasPrefix(name, "server.") && !strings.HasSuffix(address, ":observer") {
			n++
		}
	}
	return n
}

// denied returns why a node cannot be made below the root, or where the root would be.
func (s *Store) denied(ctx context.Context, exists bool) (denied, err error) {
	if exists {
		return s.tryCreate(ctx, s.root, s.root+"/doctor-"+rand.Text())
	}
	above := "/"
	for i := 1; i <= len(s.root); i++ {
		if i < len(s.root) && s.root[i] != '/' {
			continue
		}
		replies, err := s.ask(ctx, wire.GetACL(s.root[:i]))
		if err != nil {
			return nil, err
		}
		if replies[0].Code == wire.NoNode {
			return s.tryCreate(ctx, above, s.root[:i])
		}
		above = s.root[:i]
	}
	return nil, nil // somebody has just made it
}

// tryCreate returns what the server says to a node that would be made, if a version of
// the one above were not asked for that it cannot have. The right is looked at first.
func (s *Store) tryCreate(ctx context.Context, above, path string) (denied, err error) {
	replies, err := s.ask(ctx, wire.Multi(wire.Create(path, nil, s.acl), wire.Check(above, never)))
	if err != nil {
		return nil, err
	}
	code, err := replies[0].Failed()
	if err != nil || code == wire.BadVersion {
		return nil, err
	}
	return s.refused(code), nil
}

// short says whether a server ends the connection at the longest request. A connection
// can be lost for other reasons, but hardly twice.
func (s *Store) short(ctx context.Context) (bool, error) {
	long := wire.Multi(wire.Check("/", never), wire.SetData("/", make([]byte, maxRequest-128), never))
	for range 2 {
		_, err := s.client.Do(ctx, long)
		if err == nil {
			return false, nil
		}
		if !errors.Is(err, wire.ErrLost) {
			return false, driver.NotApplied(s.failed(err))
		}
		if _, err := s.ask(ctx, wire.Sync("/")); err != nil {
			return false, err
		}
	}
	return true, nil
}
