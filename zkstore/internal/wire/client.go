// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

var (
	// ErrNotSent is matched by the error of a call whose request was not sent.
	ErrNotSent = errors.New("not sent")
	// ErrClosed is returned by calls after Close.
	ErrClosed = errors.New("client closed")
	// ErrLost is returned when the connection ended before the answer came.
	ErrLost = errors.New("connection lost")
)

// MaxMessage bounds a message of the server in bytes.
const MaxMessage = 64 << 20

const (
	dialTimeout = 3 * time.Second
	firstPause  = 20 * time.Millisecond
	lastPause   = time.Second
)

// Options are for one client.
type Options struct {
	// Hosts are the servers, with their ports.
	Hosts []string
	// Session is after how long without a sign of life the server drops the session.
	// The connection is tested at a third of it, and given up at two thirds.
	Session time.Duration
	// TLS encrypts the connections, if it is not nil. ServerName is set to each host.
	TLS *tls.Config
	// Dial makes the connections, without TLS. If nil, it is TCP.
	Dial func(ctx context.Context, host string) (net.Conn, error)
	// Digest is USER:PASSWORD, empty for no user.
	Digest string
	// Event is called with the path of each watch that has fired, and Connected
	// after each new connection. They must not block.
	Event     func(path string)
	Connected func()
}

// Client is a client. All methods may be called concurrently.
type Client struct {
	options Options
	ctx     context.Context // ends with the client
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	queue   []*call // not written yet, oldest first
	wake    chan struct{}
	problem error // why there is no connection
	granted time.Duration
}

// call is some requests that leave together.
type call struct {
	requests []Request
	replies  []Reply
	done     func([]Reply, error)
	sent     bool // guarded by the client
}

// NewClient returns a client, which connects by itself. It must be closed.
func NewClient(o Options) *Client {
	c := &Client{options: o, wake: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.running.Go(c.run)
	return c
}

// Close ends the client, and returns when nothing of it is running any more. Calls under
// way end with [ErrClosed].
func (c *Client) Close() {
	c.cancel()
	c.running.Wait()
}

// Do sends the requests together, and returns their replies in the same order. If ctx
// ends before they were written, they are never sent, and the error matches ErrNotSent.
func (c *Client) Do(ctx context.Context, requests ...Request) ([]Reply, error) {
	type result struct {
		replies []Reply
		err     error
	}
	answer := make(chan result, 1)
	q := c.Go(func(replies []Reply, err error) { answer <- result{replies, err} }, requests...)
	select {
	case r := <-answer:
		return r.replies, r.err
	case <-ctx.Done():
	}
	if c.withdraw(q) {
		c.mu.Lock()
		problem := c.problem
		c.mu.Unlock()
		if problem == nil {
			return nil, fmt.Errorf("%w: %w", ErrNotSent, ctx.Err())
		}
		return nil, &unsentError{ctx.Err(), problem}
	}
	select {
	case r := <-answer: // both: the answer is worth more
		return r.replies, r.err
	default:
		return nil, ctx.Err()
	}
}

// unsentError is the end of the context of requests that were not sent, since there was no
// connection. Its text is why.
type unsentError struct{ ended, problem error }

func (e *unsentError) Error() string   { return "no connection: " + e.problem.Error() }
func (e *unsentError) Unwrap() []error { return []error{ErrNotSent, e.ended, e.problem} }

// Call is a call under way.
type Call = *call

// Go sends the requests together and does not wait. done is called once, and must not
// block.
func (c *Client) Go(done func([]Reply, error), requests ...Request) Call {
	q := &call{requests: requests, done: done}
	c.mu.Lock()
	closed := c.ctx.Err() != nil
	if !closed {
		c.queue = append(c.queue, q)
	}
	c.mu.Unlock()
	if closed {
		done(nil, fmt.Errorf("%w: %w", ErrNotSent, ErrClosed))
		return q
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
	return q
}

// withdraw takes a call back, and returns false if it was written.
func (c *Client) withdraw(q *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if q.sent {
		return false
	}
	for i, other := range c.queue {
		if other == q {
			c.queue = append(c.queue[:i:i], c.queue[i+1:]...)
			break
		}
	}
	q.sent = true // by no connection
	return true
}

// take returns the calls to be written, and marks them as written.
func (c *Client) take() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.queue
	c.queue = nil
	for _, q := range all {
		q.sent = true
	}
	return all
}

// run connects again and again until Close.
func (c *Client) run() {
	pause := firstPause
	hosts := rand.Perm(len(c.options.Hosts))
	for next := 0; c.ctx.Err() == nil; next++ {
		host := c.options.Hosts[hosts[next%len(hosts)]]
		l, err := c.connect(host)
		if err == nil {
			pause = firstPause
			c.note(nil)
			c.grant(l.session)
			c.options.Connected()
			err = l.serve()
		}
		if c.ctx.Err() != nil {
			break
		}
		c.note(fmt.Errorf("%s: %w", host, err))
		if (next+1)%len(hosts) != 0 {
			continue // another one may be well
		}
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
		case <-c.ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, lastPause)
	}
	for _, q := range c.take() {
		q.done(nil, fmt.Errorf("%w: %w", ErrNotSent, ErrClosed))
	}
}

// note remembers why there is no connection. An unknown user stays unknown: the waiting
// calls get the error.
func (c *Client) note(err error) {
	c.mu.Lock()
	c.problem = err
	var waiting []*call
	if errors.Is(err, AuthFailed) {
		waiting, c.queue = c.queue, nil
		for _, q := range waiting {
			q.sent = true
		}
	}
	c.mu.Unlock()
	for _, q := range waiting {
		q.done(nil, fmt.Errorf("%w: %w", ErrNotSent, err))
	}
}

func (c *Client) grant(session time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted = session
}

// Session returns the session timeout that a server has granted last, 0 if none has.
func (c *Client) Session() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.granted
}

// Dial makes a connection to a server, encrypted if the options say so, on which there is no
// session.
func (c *Client) Dial(ctx context.Context, host string) (net.Conn, error) {
	dial := c.options.Dial
	if dial == nil {
		dial = func(ctx context.Context, host string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", host)
		}
	}
	conn, err := dial(ctx, host)
	if err != nil || c.options.TLS == nil {
		return conn, err
	}
	config := c.options.TLS.Clone()
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(host)
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secure, nil
}

// connect dials, and begins a session.
func (c *Client) connect(host string) (*link, error) {
	ctx, cancel := context.WithTimeout(c.ctx, dialTimeout)
	defer cancel()
	conn, err := c.Dial(ctx, host)
	if err != nil {
		return nil, err
	}
	l := &link{c: c, conn: conn, session: c.options.Session}
	stop := context.AfterFunc(c.ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := l.begin(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return l, nil
}
