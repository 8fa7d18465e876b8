// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenureclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/clock"
	"github.com/tenurelock/tenure/internal/text"
)

const (
	maxWait    = 20 * time.Second // of one call: the service's limit
	callMargin = 10 * time.Second // that an answer may take beyond the wait
	silence    = 15 * time.Second // without an answer, before the log says so
	maxStreams = 2                // that may fail in a row, before an acquire asks for none any more
)

// Options are the options of a [Client].
type Options struct {
	// Servers are the addresses of the service: http://HOST:PORT, https://HOST:PORT or unix:/PATH. At
	// least one is required. Any of them serves; a call without an answer is followed by one to the
	// next. No proxy is used.
	Servers []string

	// Token is the bearer token, and TokenFile a file that has it, which is read again for each call.
	// Give one of them; or none, if TLS has a certificate of the client.
	Token, TokenFile string

	// TLS is for https. If nil, the authorities are those of the system.
	TLS *tls.Config

	// Owner is the name by which people know this holder. If empty, it is the host's name, the process
	// id and a random part.
	Owner string

	// Label is shown beside it, such as the version of the program. A lock can be handed over to a label.
	Label string

	// StopTimeout is for how long work may go on once its holder was asked to stop. If zero, it is the
	// lease duration of the service.
	StopTimeout time.Duration

	// Logger gets a warning when no server has answered for 15 s, and a line when one does again. If
	// nil, nothing is logged.
	Logger *slog.Logger
}

// Client acquires locks through the servers of a lock service. All methods may be called concurrently.
type Client struct {
	options     Options
	host        string
	servers     []address
	server      atomic.Int64 // where the next caller begins
	credentials credentials
	now         func() time.Duration // counts suspends
	raw         bool                 // no time service slews it

	mu     sync.Mutex
	closed bool
	// releases are under way: they go on when their callers do not wait any more. Each ends by itself,
	// after a lease or with its session. ended is closed when all have ended.
	releases int
	ended    chan struct{}
}

// New returns a client. It sends nothing. An error matches [ErrInvalid], or says why TokenFile could
// not be read.
func New(o Options) (*Client, error) {
	c := &Client{options: o}
	c.host, _ = os.Hostname() // empty if it has no name
	if o.Owner == "" {
		c.options.Owner = fmt.Sprintf("%s-%d-%s", c.host, os.Getpid(), strings.ToLower(randomPart()[:6]))
	}
	if o.Logger == nil {
		c.options.Logger = slog.New(slog.DiscardHandler)
	}
	if clock.InBubble() {
		c.now = clock.Go().Holder
	} else {
		machine, raw := clock.Machine(clock.Options{})
		c.now, c.raw = machine.Holder, raw
	}
	var err error
	if o.StopTimeout < 0 {
		err = text.Invalid("stop timeout %v must not be negative: use 0 for the lease duration", o.StopTimeout)
	}
	err = errors.Join(
		err, text.CheckNotEmpty("owner", c.options.Owner, driver.MaxOwnerLen),
		text.Check("owner", c.options.Owner, driver.MaxOwnerLen), text.Check("label", o.Label, driver.MaxOwnerLen), c.credentials.load(o.Token, o.TokenFile),
	)
	var listed error
	c.servers, listed = newServers(o.Servers, o.TLS)
	if err = errors.Join(err, listed); err != nil {
		return nil, fmt.Errorf("tenureclient: %w", err)
	}
	c.server.Store(rand.Int64N(int64(len(c.servers))))
	return c, nil
}

// Owner returns the name under which the client holds its locks.
func (c *Client) Owner() string { return c.options.Owner }

// Close waits until the releases that are under way have ended, for about a lease duration at most, or ctx
// has, and closes idle connections. Later acquires fail with [ErrClosed]. It releases no lock: each holder
// does so when its work has returned.
func (c *Client) Close(ctx context.Context) error {
	for {
		c.mu.Lock()
		c.closed = true
		n, ended := c.releases, c.ended
		c.mu.Unlock()
		if n == 0 {
			break
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return fmt.Errorf("tenureclient: %d releases are under way: %w", n, context.Cause(ctx))
		}
	}
	for _, s := range c.servers {
		if t, ok := s.RoundTripper.(*http.Transport); ok {
			t.CloseIdleConnections()
		}
	}
	return nil
}

// release carries out a release, which goes on when its caller does not wait any more.
func (c *Client) release(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.releases++; c.releases == 1 {
		c.ended = make(chan struct{})
	}
	go func() {
		do()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.releases--; c.releases == 0 {
			close(c.ended)
		}
	}()
}

// AcquireOptions are the options of one acquire. Nil means the defaults.
type AcquireOptions struct {
	// Data is written into the record with the grant, for others to read: 256 KiB at most. If nil, the
	// data of the former holder stay.
	Data []byte

	// Wait bounds the waiting, not the work. After it the acquire fails with the [*HeldError] of the last
	// known holder, or with [ErrUnavailable]. If zero, only the context bounds it. TryAcquire ignores it.
	Wait time.Duration

	// Waiting is called with each new holder that the acquire waits for, as soon as the service sees it.
	// While it runs nothing of the acquire goes on: a grant that comes meanwhile is free again after a
	// third of a lease, and the acquire waits again.
	Waiting func(*HeldError)

	// History keeps the former holder's term, for tenure history and the dashboard. Each term costs the service
	// one more write.
	History bool
}

func (o *AcquireOptions) copied() (AcquireOptions, error) {
	var c AcquireOptions
	if o != nil {
		c = *o
	}
	if c.Wait < 0 {
		return c, text.Invalid("wait %v must not be negative: use 0 to wait for as long as the context allows", c.Wait)
	}
	return c, checkData(c.Data)
}

func checkData(data []byte) error {
	if len(data) > driver.MaxDataLen {
		return text.Invalid("data has %d bytes: at most %d are allowed", len(data), driver.MaxDataLen)
	}
	return nil
}

// Acquire takes the lock, and waits until it is free. ctx bounds only the waiting: the lease lives until
// it is released, or lost.
//
// A name has 1 to 1024 bytes of printable UTF-8, no leading or trailing space, and does not begin with
// "tenure/".
//
// Servers that do not answer are asked again, as long as ctx and [AcquireOptions.Wait] allow; but if all
// of them refuse the certificate, or do not speak TLS, the error matches [ErrUnavailable] at once.
//
// The error matches the context's, if ctx ended; if that was a deadline, it also matches [ErrHeld] or
// [ErrUnavailable], as known. Otherwise it is a [*HeldError] once Wait has passed, a [*ProblemError] if
// the service has refused the call, [ErrInvalid] or [ErrClosed].
func (c *Client) Acquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, "acquire", want{name: name}, options, false)
}

// TryAcquire takes the lock if it is free. Otherwise the error is a [*HeldError], which matches [ErrHeld].
// If no server answers it matches [ErrUnavailable]: each is asked once, for 10 s at most.
func (c *Client) TryAcquire(ctx context.Context, name string, options *AcquireOptions) (*Lease, error) {
	return c.acquire(ctx, "try acquire", want{name: name}, options, true)
}

// Run takes the lock, runs work while it is held, waits for it to return, and releases the lock.
//
// The context of work carries ctx's values, and ends with ctx and with the lease: see [Lease.Context].
// When it ends, work must return.
//
// Run returns what work returns. If the lease was lost before that, the error matches [ErrLost] too. If
// the holder was asked to step down, and work returned an error, it matches [ErrSteppedDown]. If the lock
// was not acquired, work was not run; see [Client.Acquire]. If work panics, Run releases the lock and the
// panic goes on. If work returns an error without having been asked to stop, the history shows it.
func (c *Client) Run(
	ctx context.Context, name string, options *AcquireOptions, work func(context.Context, *Lease) error,
) error {
	l, err := c.Acquire(ctx, name, options)
	if err != nil {
		return err
	}
	return l.run(ctx, func(ctx context.Context) error { return work(ctx, l) })
}

// kind is which lock of a name is wanted.
type kind int

const (
	plainKind kind = iota
	slotKind       // a slot of a semaphore
	readKind
	writeKind
)

// want is a lock that is wanted.
type want struct {
	kind  kind
	name  string
	slots int
}

// what says what the name is of.
func (w want) what() string {
	return [...]string{"lock name", "semaphore name", "lock name", "lock name"}[w.kind]
}

// longest returns how long the name may be: derived ones are longer.
func (w want) longest() int {
	if w.kind == plainKind {
		return driver.MaxNameLen
	}
	return maxDerivedLen
}

// maxDerivedLen is the longest name of a semaphore, or of a lock for readers and writers: that of packages
// semaphore and rwlock.
const maxDerivedLen = 1008

// holder acquires locks: a client, or a session.
type holder interface {
	acquire(ctx context.Context, op string, w want, o *AcquireOptions, try bool) (*Lease, error)
	// runs acquires a lock, and works under it.
	runs(func() error) error
}

func (c *Client) runs(do func() error) error { return do() }

func (c *Client) acquire(ctx context.Context, op string, w want, o *AcquireOptions, try bool) (*Lease, error) {
	l, err := c.take(ctx, w, o, try, c.hold, func() error { return nil })
	return l, wrap(op, w.name, err)
}

// hold begins to hold the lock of a grant. It returns nil if the grant was lost before a heartbeat.
func (c *Client) hold(ctx context.Context, g grant, sent time.Duration) (*Lease, error) {
	l := c.lease(g)
	if !l.renewer.start(ctx, sent) {
		l.giveBack()
		return nil, nil
	}
	return l, nil
}

// acquiring is an acquire under way.
type acquiring struct {
	c       *Client
	w       want
	o       AcquireOptions
	try     bool
	until   time.Time // zero: there is no end
	to      *caller
	body    fields
	backoff backoff

	met           *HeldError // who had the lock last
	failures      int        // in a row: calls without an answer, or without the store's
	wrong         int        // of these at last: by a fault that stays
	tries         int        // calls that may fail before a try gives up
	silent        time.Time  // since when no server answers; zero: one does
	warned        bool
	failedStreams int  // in a row
	unheard       bool // the last call had no answer
}

// take acquires what is wanted. begin makes a lease of a grant, or returns neither a lease nor an error if
// the grant was lost. waits is called before a wait.
func (c *Client) take(
	ctx context.Context, w want, options *AcquireOptions, try bool,
	begin func(context.Context, grant, time.Duration) (*Lease, error), waits func() error,
) (*Lease, error) {
	o, err := options.copied()
	if err == nil {
		err = text.CheckName(w.what(), w.name, w.longest())
	}
	switch {
	case err != nil:
		return nil, err
	case ctx.Err() != nil:
		return nil, done(ctx, nil)
	case c.isClosed():
		return nil, ErrClosed
	}
	a := &acquiring{c: c, w: w, o: o, try: try, to: c.caller(), tries: len(c.servers)}
	if o.Wait > 0 && !try {
		a.until = time.Now().Add(o.Wait)
	}
	a.body = a.ask()
	wait := time.Duration(0) // at first: then it is known who is waited for
	for {
		began, sent := time.Now(), c.now()
		g, p := a.call(ctx, wait)
		if ctx.Err() != nil {
			if p == nil {
				c.lease(g).giveBack()
			}
			return nil, done(ctx, a.last(p))
		}
		switch {
		case p == nil:
			l, err := begin(ctx, g, sent)
			if l != nil || err != nil {
				return l, err
			}
			p = unknownf("the grant was lost before a heartbeat")
			err = a.pause(ctx, p)
			if err != nil {
				return nil, err
			}
		case p.kind == "held":
			a.failures, a.wrong = 0, 0
			a.meets(p.held)
			if a.left() == 0 {
				return nil, a.met
			}
			if err := waits(); err != nil {
				return nil, err
			}
			if time.Since(began) < wait/2 {
				sleep(ctx, min(a.backoff.next(), a.left())) // it had no patience; we need not hurry
			} else {
				a.backoff = backoff{}
			}
		case p.kind == "bad-request" && a.body["clock"] != nil:
			delete(a.body, "clock") // an older server grants nothing then, and without it for any clock
			continue
		case p.kind != "" && !again[p.kind]:
			return nil, &ProblemError{p.kind, p.status, p.detail}
		default:
			if err := a.fails(p); err != nil {
				return nil, err
			}
			if err := errors.Join(waits(), a.pause(ctx, p)); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil {
			return nil, done(ctx, a.last(p))
		}
		wait = a.left()
	}
}

// again are the problems after which a retry may succeed: the service has not done what was asked.
var again = map[string]bool{"unknown": true, "unavailable": true, "limited": true, "unanswered": true, "lost": true}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// ask returns what each call says.
func (a *acquiring) ask() fields {
	body := a.c.introduction()
	body["name"] = a.w.name
	if a.o.Data != nil {
		body["data"] = append([]byte{}, a.o.Data...)
	}
	if a.o.History {
		body["history"] = true
	}
	switch a.w.kind {
	case plainKind:
	case slotKind:
		body["slots"] = a.w.slots
	case readKind:
		body["shared"] = true
	case writeKind:
		body["exclusive"] = true
	}
	return body
}

// introduction returns what the client says of itself.
func (c *Client) introduction() fields {
	body := fields{"owner": c.options.Owner, "host": text.Line(c.host)}
	if c.options.Label != "" {
		body["label"] = c.options.Label
	}
	if c.raw {
		body["clock"] = "raw"
	}
	return body
}

// call makes one call. It is a stream if the caller wants to know the holders; the call after an unanswered
// one is not, and after several failed streams no call is.
func (a *acquiring) call(ctx context.Context, wait time.Duration) (grant, *problem) {
	began := time.Now()
	var met func(HeldError)
	if a.o.Waiting != nil && wait > 0 && !a.unheard && a.failedStreams < maxStreams {
		met = a.meets
	}
	a.body["wait_ms"] = wait.Milliseconds()
	reads := func(r reply) (grant, *problem) { return readAcquire(r, a.w) }
	g, p := follow(ctx, a.to, wait+callMargin, "/v1/acquire", a.body, met, reads)
	a.unheard = p != nil && p.kind == ""
	switch {
	case met == nil:
	case a.unheard:
		a.failedStreams++
	default:
		a.failedStreams = 0
	}
	a.hear(ctx, p, began)
	return g, p
}

// hear warns once if no server answers for some time.
func (a *acquiring) hear(ctx context.Context, p *problem, began time.Time) {
	log := a.c.options.Logger.With("lock", a.w.name)
	if !a.unheard {
		if a.warned {
			log.InfoContext(ctx, "tenureclient: the service answers again")
		}
		a.silent, a.warned = time.Time{}, false
		return
	}
	if a.silent.IsZero() {
		a.silent = began
	}
	if quiet := time.Since(a.silent); quiet >= silence && !a.warned && ctx.Err() == nil {
		a.warned = true
		quiet = quiet.Round(time.Second)
		log.WarnContext(ctx, "tenureclient: no answer; trying again", "for", quiet, "last", p.String())
	}
}

// left returns how long the acquire may still wait.
func (a *acquiring) left() time.Duration {
	switch {
	case a.try:
		return 0
	case a.until.IsZero():
		return maxWait
	}
	return min(maxWait, max(0, time.Until(a.until).Truncate(time.Millisecond)))
}

// meets notes a holder, and reports it if it is new.
func (a *acquiring) meets(h HeldError) {
	known := a.met != nil && a.met.Owner == h.Owner && a.met.Token == h.Token
	a.met = &h
	if !known && a.o.Waiting != nil && a.left() > 0 {
		a.o.Waiting(&h)
	}
}

// fails counts a call without an answer. It returns an error if none will be answered.
func (a *acquiring) fails(p *problem) error {
	a.failures++
	if a.wrong++; !p.permanent {
		a.wrong = 0
	}
	if a.wrong >= len(a.c.servers) {
		return unavailable(p)
	}
	return nil
}

// pause waits before the next call. It returns an error if there is no time for one.
func (a *acquiring) pause(ctx context.Context, p *problem) error {
	a.tries--
	left := a.left()
	switch {
	case left > 0:
		least := min(p.retryAfter, maxWait)
		sleep(ctx, min(left, max(a.backoff.next(), jitter(least, least+least/5))))
		return nil
	case a.tries > 0:
		return nil // another server may know better
	}
	return a.last(p)
}

// last returns what has kept the acquire from the lock at last.
func (a *acquiring) last(p *problem) error {
	switch {
	case a.met != nil && (p == nil || a.failures < len(a.c.servers)):
		return a.met
	case p != nil:
		return unavailable(p)
	}
	return nil
}

func unavailable(p *problem) error { return fmt.Errorf("%w: %v", ErrUnavailable, p) }

// done returns the error of a context that has ended, with what the caller has waited for until a deadline.
func done(ctx context.Context, met error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(cause, err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if met != nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", err, met)
	}
	return err
}
