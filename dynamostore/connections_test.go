// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// nat passes connections on to an engine, until it forgets those that there are:
// it keeps them open, and nothing passes any more. New ones work.
type nat struct {
	net.Listener
	engine string
	enough int // nothing passes before there are so many

	mu    sync.Mutex
	ready chan struct{}
	all   []*passage
}

type passage struct {
	client, engine net.Conn
	mu             sync.Mutex
	dark           bool
}

func newNAT(t *testing.T, engine string, enough int) *nat {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &nat{Listener: l, engine: strings.TrimPrefix(engine, "http://"), enough: enough, ready: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { n.serve(client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		n.mu.Lock()
		for _, p := range n.all {
			_, _ = p.client.Close(), p.engine.Close()
		}
		n.mu.Unlock()
		running.Wait()
	})
	return n
}

func (n *nat) serve(client net.Conn) {
	engine, err := net.Dial("tcp", n.engine)
	if err != nil {
		_ = client.Close()
		return
	}
	p := &passage{client: client, engine: engine}
	n.mu.Lock()
	if n.all = append(n.all, p); len(n.all) == n.enough {
		close(n.ready)
	}
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pass(engine, client, n.ready) })
	both.Go(func() { p.pass(client, engine, n.ready) })
	both.Wait()
}

func (p *passage) pass(to, from net.Conn, ready <-chan struct{}) {
	buffer := make([]byte, 16<<10)
	for {
		read, err := from.Read(buffer)
		<-ready
		p.mu.Lock()
		dark := p.dark
		p.mu.Unlock()
		if !dark && read > 0 {
			_, err = to.Write(buffer[:read])
		}
		if err != nil {
			if err != io.EOF { //nolint:errorlint // Read returns it as it is
				_ = from.Close()
			}
			_ = to.Close()
			return
		}
	}
}

// forget has all connections go dark, and returns how many there were.
func (n *nat) forget() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.all {
		p.mu.Lock()
		p.dark = true
		p.mu.Unlock()
	}
	return len(n.all)
}

// TestConnectionsThatGoDark has ten idle connections forgotten by what lies
// between. Each costs a request timeout, and ten of them more than the lease, if
// they are tried one after the other.
func TestConnectionsThatGoDark(t *testing.T) {
	const lease, pooled = 3 * time.Second, 10
	for name, client := range map[string]dynamodb.HTTPClient{
		"TheSDKsOwn": nil,
		"HTTPClient": &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: pooled}},
	} {
		t.Run(name, func(t *testing.T) {
			e := enginetest.FullDynamoDB(t)
			s := newSite(t, e)
			way := newNAT(t, e.URL, pooled)
			endpoint := "http://" + way.Addr().String()
			store, err := dynamostore.New(dynamodb.New(dynamodb.Options{
				BaseEndpoint: &endpoint, Region: "local", Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), HTTPClient: client,
			}), s.table, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			c, err := tenure.New(store, &tenure.Options{LeaseDuration: lease})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx, stop := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
				defer stop()
				if err := c.Close(ctx); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			// A burst of acquires before is enough: the pool has ten connections then.
			var all sync.WaitGroup
			leases := make([]*tenure.Lease, pooled)
			for i := range pooled {
				all.Go(func() {
					var err error
					if leases[i], err = c.Acquire(t.Context(), fmt.Sprint("lock-", i), nil); err != nil {
						t.Error(err)
					}
				})
			}
			if all.Wait(); t.Failed() {
				return
			}
			for _, l := range leases[1:] {
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
			n := way.forget()
			select {
			case <-leases[0].Context().Done():
				t.Errorf("after %d connections went dark the lease was lost: %v", n, context.Cause(leases[0].Context()))
			case <-time.After(2 * lease):
				if err := leases[0].Release(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
}
