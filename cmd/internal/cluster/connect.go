// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
)

const (
	// callPatience bounds a call that changes the cluster.
	callPatience = 15 * time.Second
	// listPatience bounds a question to most of the members.
	listPatience = 6 * time.Second
	// statusPatience bounds the answer of one member about itself.
	statusPatience = 4 * time.Second
)

// connection is a client of the cluster, with an operator's certificate.
type connection struct {
	f      *Folder
	client *clientv3.Client
}

// location returns the store as the operator reaches it.
func (f *Folder) location() (storeurl.Location, error) {
	return storeurl.Parse(f.url(adminDir, adminUser))
}

// connect does not wait until somebody answers.
func (f *Folder) connect() (*connection, error) { return f.connectTo("") }

// connectTo connects to one member alone, "" for all.
func (f *Folder) connectTo(url string) (*connection, error) {
	l, err := f.location()
	if err != nil {
		return nil, err
	}
	e, ok := l.Etcd()
	if !ok {
		return nil, fmt.Errorf("%s is no store in etcd", l.Shown())
	}
	config, err := e.Config()
	if err != nil {
		return nil, err
	}
	config.Logger = zap.NewNop()
	if url != "" {
		config.Endpoints = []string{url}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, err
	}
	return &connection{f, client}, nil
}

// meet connects to the cluster, and asks for its members.
func (f *Folder) meet(ctx context.Context) (*connection, []member, error) {
	c, err := f.connect()
	if err != nil {
		return nil, nil, err
	}
	members, err := c.look(ctx, false)
	if err != nil {
		c.close()
		return nil, nil, err
	}
	return c, members, nil
}

func (c *connection) close() { _ = c.client.Close() } // it has nothing to lose

// member is one of the cluster, as it is seen now.
type member struct {
	*etcdserverpb.Member
	node   string // what it is called
	url    string // where clients find it
	status *clientv3.StatusResponse
	err    error // why there is no status
}

// votes says that it is no learner.
func (m member) votes() bool { return !m.IsLearner }

// leads says that it says so.
func (m member) leads() bool { return m.status != nil && m.status.Leader == m.ID }

// well says that it answers, has a leader, and knows of no error.
func (m member) well() bool {
	return m.status != nil && m.status.Leader != 0 && len(m.status.Errors) == 0
}

// look asks the cluster for its members, and each of them how it is. The list is one that most
// members agree on, unless that is impossible and stale is true.
func (c *connection) look(ctx context.Context, stale bool) ([]member, error) {
	list, err := c.members(ctx)
	if err != nil && stale {
		ask, cancel := context.WithTimeout(ctx, statusPatience)
		defer cancel()
		list, err = c.client.MemberList(ask, clientv3.WithSerializable())
	}
	if err != nil {
		return nil, fmt.Errorf("the members cannot be asked for: %w", plain(err))
	}
	all := make([]member, len(list.Members))
	var asking sync.WaitGroup
	for i, m := range list.Members {
		all[i] = c.known(m)
		asking.Go(func() { all[i].status, all[i].err = c.status(ctx, all[i].url) })
	}
	asking.Wait()
	slices.SortFunc(all, func(a, b member) int { return cmp.Compare(a.node, b.node) })
	return all, nil
}

func (c *connection) members(ctx context.Context) (*clientv3.MemberListResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, listPatience)
	defer cancel()
	return c.client.MemberList(ctx)
}

// known returns a member under the name that the folder has for it.
func (c *connection) known(m *etcdserverpb.Member) member {
	s := c.f.plan.Settings
	for _, n := range c.f.plan.Nodes {
		if slices.Contains(m.PeerURLs, s.peerURL(n)) {
			return member{Member: m, node: n.Name, url: s.clientURL(n)}
		}
	}
	known := member{Member: m, node: cmp.Or(m.Name, fmt.Sprintf("%x", m.ID))}
	if len(m.ClientURLs) > 0 {
		known.url = m.ClientURLs[0]
	}
	return known
}

func (c *connection) status(ctx context.Context, url string) (*clientv3.StatusResponse, error) {
	if url == "" {
		return nil, errors.New("it was never started")
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	// The client of etcd tries on and on, and does not tell why.
	at, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(url, "https://"))
	if err != nil {
		return nil, err
	}
	_ = at.Close() // nothing was sent
	status, err := c.client.Status(ctx, url)
	return status, plain(err)
}

// plain shortens what gRPC says.
func plain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	if i := strings.LastIndex(text, "desc = "); i >= 0 {
		return errors.New(strings.Trim(text[i+len("desc = "):], `"`))
	}
	return err
}

// settled is for how long the members must have been connected before etcd changes who they
// are, and a bit.
const settled = 10 * time.Second

// change makes a call that changes the members. It is made again where the members have just
// found each other, and where the one that was asked is going: one that is removed may stop
// before it has answered. The error done says that it is so already.
func change(ctx context.Context, done error, call func(context.Context) error) error {
	for begun := time.Now(); ; {
		ask, cancel := context.WithTimeout(ctx, callPatience)
		err := call(ask)
		cancel()
		switch {
		case errors.Is(err, done):
			return nil
		case !unavailable(err), time.Since(begun) > settled:
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// unavailable says that a member, or the cluster, could not do what was asked, for now.
func unavailable(err error) bool {
	if said := (rpctypes.EtcdError{}); errors.As(err, &said) {
		return said.Code() == codes.Unavailable
	}
	return status.Code(err) == codes.Unavailable
}

// quorum is how many of the voters must agree.
func quorum(voters int) int { return voters/2 + 1 }

// names returns the names of members.
func names(members []member) string {
	var all []string
	for _, m := range members {
		all = append(all, m.node)
	}
	return strings.Join(all, ", ")
}

// those returns the members of which something is so.
func those(members []member, is func(member) bool) []member {
	return slices.DeleteFunc(slices.Clone(members), func(m member) bool { return !is(m) })
}
