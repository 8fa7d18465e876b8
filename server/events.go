// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/server/access"
	"github.com/tenurelock/tenure/server/internal/wire"
)

// events is GET /v1/events.
func (c *call) events() error {
	if c.r.Method == http.MethodHead {
		c.w.Header().Set("Allow", http.MethodGet)
		return problemf(wrongMethod, "%s takes GET, not HEAD: a stream has no end", c.r.URL.Path)
	}
	of, err := c.following()
	if err != nil {
		return err
	}
	out := &stream{c: c, media: lineStream}
	switch {
	case c.accepts(eventStream):
		out.media = eventStream
	case len(c.r.Header.Values("Accept")) == 0, c.accepts(lineStream), c.accepts("application/*"), c.accepts("*/*"):
	default:
		return problemf(badRequest, "Accept has neither %s nor %s: the stream is one of them", eventStream, lineStream)
	}
	ctx, leave, err := c.s.wait(c.r.Context(), c.principal, "events")
	if err != nil {
		return err
	}
	defer leave()
	feed, done := c.s.feeds.follow(of)
	defer done()
	st := &followed{c: c, out: out, of: of, feed: feed}
	if err := st.run(ctx); err != nil {
		// The client that does not take an event does not take this one either.
		_ = out.problem(c.told(err))
	}
	return nil
}

// following returns what the call wants to follow, and may.
func (c *call) following() (feedOf, error) {
	q, err := c.query("name", "prefix")
	switch {
	case err != nil:
		return feedOf{}, err
	case q.Has("name") == q.Has("prefix"):
		return feedOf{}, problemf(badRequest, "give either name, for one lock, or prefix, the beginning of many names, "+
			"which may be empty")
	case q.Has("name"):
		name := q.Get("name")
		if err := c.may(access.Read, name); err != nil {
			return feedOf{}, err
		}
		if len(name) > driver.MaxNameLen {
			return feedOf{}, problemf(badRequest, "lock name %.20q... has %d bytes: at most %d are allowed",
				name, len(name), driver.MaxNameLen)
		}
		return feedOf{name: name}, nil
	}
	if err := checkLen(q, "prefix"); err != nil {
		return feedOf{}, err
	}
	prefix := q.Get("prefix")
	switch below := c.principal.Prefixes(access.Read, prefix); {
	case len(below) == 0:
		return feedOf{}, c.readsNothing(prefix)
	case len(below) == 1:
		prefix = below[0]
	}
	return feedOf{prefix: prefix}, nil
}

// followed is one stream.
type followed struct {
	c    *call
	out  *stream
	of   feedOf
	feed *feed
	last *snapshot // that was sent
}

// errGone is the error of a client that does not take what is sent.
var errGone = errors.New("the client does not read")

// run sends what happens until the call ends. The error is what is to be told at its end.
func (f *followed) run(ctx context.Context) error {
	if f.out.write("") != nil { // at once: a client whose locks do not exist yet waits for an answer, too
		return errGone
	}
	tick := time.NewTicker(alivePeriod)
	defer tick.Stop()
	for {
		now, changed := f.feed.now()
		if now != nil && now != f.last {
			if err := f.send(now); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case <-tick.C:
			if f.out.alive() != nil {
				return errGone
			}
			if err := f.stillMay(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stillMay says whether the principal is known still, and which rights it has now: a stream
// may outlive a token.
func (f *followed) stillMay() error {
	p, err := f.c.s.principalOf(f.c.r)
	if err != nil {
		return problemf(unauthenticated, "the token or certificate is no longer known")
	}
	f.c.principal = p
	if f.of.name != "" {
		return f.c.may(access.Read, f.of.name)
	}
	return nil
}

// send sends what differs from what was sent last.
func (f *followed) send(now *snapshot) error {
	if now.err != nil {
		p := f.c.told(now.err)
		if f.last != nil && f.last.err != nil && p.kind != tooLarge {
			return nil // told already
		}
		if p.kind == tooLarge {
			return p
		}
		// What was sent before is what the next snapshot is compared with.
		before := f.last
		f.last = &snapshot{err: now.err}
		if before != nil {
			f.last.locks = before.locks
		}
		return delivered(f.out.problem(p))
	}
	may := func(name string) bool { return f.c.principal.May(access.Read, name) }
	err := now.since(f.last, f.of.prefix, func(st wire.Status) error {
		if !may(st.Name) {
			return nil
		}
		return f.out.event("status", wire.Event{Status: st})
	}, func(name string) error {
		if !may(name) {
			return nil
		}
		return f.out.event("gone", wire.Event{Name: name})
	})
	if err == nil && f.of.name != "" && f.last == nil && len(now.locks) == 0 {
		err = f.out.event("gone", wire.Event{Name: f.of.name}) // so that the stream says something
	}
	f.last = now
	return delivered(err)
}

// delivered says that the client takes what is sent.
func delivered(err error) error {
	if err != nil {
		return errGone
	}
	return nil
}

const (
	eventStream = "text/event-stream"
	lineStream  = "application/x-ndjson"

	// alivePeriod is how often a stream says that it is alive, so that no proxy takes it for
	// dead, and a client that went away is found out.
	alivePeriod = 5 * time.Second
)

// stream sends events, each at once and in bounded time. An error says that the client does not
// take them.
type stream struct {
	c     *call
	media string // eventStream: server-sent events; lineStream: a line of JSON for each, a wire.Event
	begun bool
}

// event sends one event. Of a wire.Event a server-sent event has the part that its name says.
func (w *stream) event(name string, data any) error {
	e, follows := data.(wire.Event)
	switch {
	case w.media == lineStream:
		e.Event = name
		data = e
	case follows && name == "gone":
		data = map[string]string{"name": e.Name}
	case follows:
		data = e.Status
	}
	text, err := json.Marshal(data) // in one line
	switch {
	case err != nil:
		return fmt.Errorf("event %s: %w", name, err)
	case w.media == lineStream:
		return w.write(string(text) + "\n")
	}
	return w.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, text))
}

// alive says that nothing has happened.
func (w *stream) alive() error {
	if w.media == lineStream {
		return w.event("alive", wire.Event{})
	}
	return w.write(": alive\n\n")
}

func (w *stream) problem(p *problem) error {
	if w.media == lineStream {
		return w.event("problem", wire.Event{Problem: p.Problem})
	}
	if p.retryAfter > 0 {
		if err := w.write(fmt.Sprintf("retry: %d\n", p.retryAfter.Milliseconds())); err != nil {
			return err
		}
	}
	return w.event("problem", p.Problem)
}

// write sends the headers, once, and a text.
func (w *stream) write(text string) error {
	if !w.begun {
		w.begun = true
		w.c.w.Header().Set("Content-Type", w.media)
		w.c.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep the events for itself
		w.c.w.WriteHeader(http.StatusOK)
	}
	return w.c.bounded(func() error {
		_, err := w.c.w.Write([]byte(text))
		return err
	})
}

// taken is how an attempt has ended.
type taken struct {
	grant wire.Grant
	err   error
}

// stream answers an acquire with a stream of events.
func (a *attempt) stream(parent context.Context) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	waiting, done := make(chan *tenure.HeldError, 1), make(chan taken, 1)
	go func() {
		g, err := a.take(ctx, func(e *tenure.HeldError) {
			select {
			case <-waiting: //nolint:errcheck // an older one
			default:
			}
			waiting <- e
		})
		done <- taken{g, err}
	}()
	w := &stream{c: a.c, media: eventStream}
	tick := time.NewTicker(alivePeriod)
	defer tick.Stop()
	for {
		var err error
		select {
		case e := <-waiting:
			err = w.event("waiting", wire.Waiting{
				Holder: e.Owner, Token: e.Token, FreeInMs: ceilMs(e.FreeIn), Reserved: e.Reserved, Label: e.Label,
			})
		case <-tick.C:
			err = w.alive()
		case t := <-done:
			return a.ended(w, t)
		}
		if err != nil { // the client has gone, or does not read
			cancel()
			if t := <-done; t.err == nil {
				return a.hand(t.grant, func(wire.Grant) error { return err })
			}
			return nil
		}
	}
}

// ended tells how the attempt has ended.
func (a *attempt) ended(w *stream, t taken) error {
	if t.err != nil {
		_ = w.problem(a.c.told(t.err)) // the stream ends in any case
		return nil
	}
	if err := a.hand(t.grant, func(g wire.Grant) error { return w.event("granted", g) }); err != nil {
		_ = w.problem(a.c.told(err))
	}
	return nil
}

const (
	// followPeriod is how often the locks that streams follow are looked at. What a watch or
	// a poll of the client shows before comes at once.
	followPeriod = 2 * time.Second
	// restPerLook is for how many times as long as they took nothing is listed after lists of
	// a prefix, up to maxRest: a fifth of the time goes into them. A new prefix waits for that.
	restPerLook = 4
	maxRest     = lookTimeout / 2
	// maxFollowed is how many locks one stream follows.
	maxFollowed = 10_000
)

// feeds look at locks for all streams that follow them. Streams of names that begin alike
// share one list of the store and one snapshot: together they cost as much as the widest. And
// one list is read at a time, with rests, so that who follows much leaves the store and the
// processor to those who hold. A feed lives for as long as it has a stream.
type feeds struct {
	client *tenure.Client

	mu       sync.Mutex
	all      map[feedOf]*feed
	prefixes int           // how many of all follow a prefix
	scanning *task         // nil without any
	added    chan struct{} // one more does
}

// feedOf is what a feed follows: one lock, or all below a prefix.
type feedOf struct{ name, prefix string }

// feed is what is known of some locks.
type feed struct {
	of       feedOf
	streams  int   // guarded by the feeds
	watching *task // of one lock

	mu      sync.Mutex
	latest  *snapshot
	changed chan struct{} // closed when there is another one
}

// snapshot is locks at one time, in the order of their names: those of a feed, and maybe
// others. It does not change.
type snapshot struct {
	locks []wire.Status
	err   error // instead
}

// task is a goroutine that can be stopped.
type task struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

func begin(f func(context.Context)) *task {
	ctx, cancel := context.WithCancel(context.Background())
	t := &task{cancel, make(chan struct{})}
	go func() {
		defer close(t.ended)
		f(ctx)
	}()
	return t
}

// stop returns when the task has ended. There may be no task.
func (t *task) stop() {
	if t != nil {
		t.cancel()
		<-t.ended
	}
}

func newFeeds(client *tenure.Client) *feeds {
	return &feeds{client: client, all: map[feedOf]*feed{}, added: make(chan struct{}, 1)}
}

// follow returns a feed, until leave is called.
func (s *feeds) follow(of feedOf) (f *feed, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.all[of]
	if f == nil {
		f = &feed{of: of, changed: make(chan struct{})}
		if of.name != "" {
			f.watching = begin(func(ctx context.Context) { s.watch(ctx, f) })
		} else {
			s.addPrefix(f)
		}
		s.all[of] = f
	}
	f.streams++
	return f, func() { s.leave(f) }
}

// addPrefix adds a feed. It begins with what a wider feed knows.
func (s *feeds) addPrefix(f *feed) {
	for of, wide := range s.all {
		known, _ := wide.now()
		if of.name == "" && strings.HasPrefix(f.of.prefix, of.prefix) && known != nil && known.err == nil {
			f.latest = known
			break
		}
	}
	s.prefixes++
	if s.scanning == nil {
		s.scanning = begin(s.scan)
	}
	if f.latest == nil {
		select {
		case s.added <- struct{}{}:
		default:
		}
	}
}

// leave ends a feed with its last stream, and waits until its reads have ended.
func (s *feeds) leave(f *feed) {
	s.mu.Lock()
	f.streams--
	var last *task
	if f.streams == 0 {
		delete(s.all, f.of)
		last = f.watching
		if f.of.name == "" {
			s.prefixes--
		}
		if f.of.name == "" && s.prefixes == 0 {
			last, s.scanning = s.scanning, nil
		}
	}
	s.mu.Unlock()
	last.stop()
}

// watch watches the lock of a feed.
func (s *feeds) watch(ctx context.Context, f *feed) {
	hint := make(chan struct{}, 1)
	observing := begin(func(context.Context) {
		for range s.client.Election(f.of.name, nil).Observe(ctx) { //nolint:errcheck // an error is a reason to read, too
			select {
			case hint <- struct{}{}:
			default:
			}
		}
	})
	defer observing.stop()
	tick := time.NewTicker(followPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		f.publish(ctx, s.lock(ctx, f.of.name))
		select {
		case <-hint:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// scan reads the locks of all prefixes.
func (s *feeds) scan(ctx context.Context) {
	for first := ""; ; {
		begun := time.Now()
		first = s.round(ctx, first)
		rest := min(restPerLook*time.Since(begun), maxRest)
		sleep(ctx, rest, nil)
		sleep(ctx, followPeriod-rest, s.added)
		if ctx.Err() != nil {
			return
		}
	}
}

func sleep(ctx context.Context, d time.Duration, woken <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
	}
}

// round lists the locks of each prefix once, but not those that a wider prefix has listed. If
// a list does not end in time, the store is considered away, which is reported to all feeds at
// once. The list may also be too long: the next round begins with the prefix after it, which
// round returns, so that the other prefixes get their turn.
func (s *feeds) round(ctx context.Context, first string) (next string) {
	left := s.ofPrefixes(first)
	for len(left) > 0 && ctx.Err() == nil {
		f := left[0]
		now := s.list(ctx, f.of.prefix)
		if known := sameOf(left, now); known != nil {
			now = known
		}
		var p *problem
		tooMany := errors.As(now.err, &p) && p.kind == tooLarge
		late := errors.Is(now.err, context.DeadlineExceeded)
		if late && len(left) > 1 {
			next = left[1].of.prefix
		}
		left = slices.DeleteFunc(left, func(other *feed) bool {
			served := other == f || late || !tooMany && strings.HasPrefix(other.of.prefix, f.of.prefix)
			if served {
				other.publish(ctx, now)
			}
			return served
		})
	}
	return next
}

// sameOf returns what a feed already knows if now is the same, otherwise nil, so that equal
// values are stored once.
func sameOf(all []*feed, now *snapshot) *snapshot {
	var compared *snapshot
	for _, f := range all {
		known, _ := f.now()
		if known == nil || known == compared {
			continue
		}
		if known.same(now) {
			return known
		}
		compared = known
	}
	return nil
}

// ofPrefixes returns the feeds of prefixes, each after the wider ones, except in a round that
// begins in between.
func (s *feeds) ofPrefixes(first string) (all []*feed) {
	s.mu.Lock()
	for of, f := range s.all {
		if of.name == "" {
			all = append(all, f)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *feed) int { return strings.Compare(a.of.prefix, b.of.prefix) })
	i := max(0, slices.IndexFunc(all, func(f *feed) bool { return f.of.prefix >= first }))
	return slices.Concat(all[i:], all[:i])
}

// lock reads one lock.
func (s *feeds) lock(ctx context.Context, name string) *snapshot {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	st, err := s.client.Status(ctx, name)
	switch {
	case err != nil:
		return &snapshot{err: err}
	case st.State == "":
		return &snapshot{}
	}
	return &snapshot{locks: []wire.Status{statusOf(&st)}}
}

// list reads the locks below a prefix.
func (s *feeds) list(ctx context.Context, prefix string) *snapshot {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	next := &snapshot{}
	for st, err := range s.client.Locks(ctx, &tenure.ListOptions{Prefix: prefix}) {
		switch {
		case err != nil && st.Name == "":
			return &snapshot{err: err}
		case err != nil: // an unreadable record; a list names it
		case len(next.locks) == maxFollowed:
			return &snapshot{err: problemf(tooLarge, "more than %d locks begin with %.200q: follow a longer prefix",
				maxFollowed, prefix)}
		default:
			next.locks = append(next.locks, statusOf(&st))
		}
	}
	return next
}

// publish hands a snapshot to the streams, if it says anything new. What was read when ctx had
// ended says nothing.
func (f *feed) publish(ctx context.Context, next *snapshot) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil || f.latest != nil && f.latest.same(next) {
		return
	}
	f.latest = next
	close(f.changed)
	f.changed = make(chan struct{})
}

// now returns the latest snapshot, nil if there is no snapshot yet, and a channel that is
// closed when the next one is ready.
func (f *feed) now() (*snapshot, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.latest, f.changed
}

func (s *snapshot) same(next *snapshot) bool {
	if s == next {
		return true
	}
	if s.err != nil || next.err != nil {
		return s.err != nil && next.err != nil && fmt.Sprint(s.err) == fmt.Sprint(next.err)
	}
	return slices.EqualFunc(s.locks, next.locks, alike)
}

// within returns the locks whose names begin with prefix. There may be no snapshot.
func (s *snapshot) within(prefix string) []wire.Status {
	if s == nil {
		return nil
	}
	first := sort.Search(len(s.locks), func(i int) bool { return s.locks[i].Name >= prefix })
	behind := sort.Search(len(s.locks), func(i int) bool {
		return s.locks[i].Name >= prefix && !strings.HasPrefix(s.locks[i].Name, prefix)
	})
	return s.locks[first:behind]
}

// since yields the differences from an earlier snapshot (nil: none) for names that begin with
// prefix: each new or changed lock, and the names of locks that are gone.
func (s *snapshot) since(
	before *snapshot, prefix string, changed func(wire.Status) error, gone func(name string) error,
) error {
	old := before.within(prefix)
	for _, lock := range s.within(prefix) {
		for len(old) > 0 && old[0].Name < lock.Name {
			if err := gone(old[0].Name); err != nil {
				return err
			}
			old = old[1:]
		}
		if len(old) > 0 && old[0].Name == lock.Name {
			was := old[0]
			if old = old[1:]; alike(was, lock) {
				continue
			}
		}
		if err := changed(lock); err != nil {
			return err
		}
	}
	for _, lock := range old {
		if err := gone(lock.Name); err != nil {
			return err
		}
	}
	return nil
}

// alike says whether two states of a lock are the same but for what each heartbeat changes.
func alike(a, b wire.Status) bool {
	return a.Name == b.Name && a.State == b.State && a.Token == b.Token && a.InDoubt == b.InDoubt &&
		a.Holder == b.Holder && a.Host == b.Host && a.Label == b.Label && a.Session == b.Session &&
		a.Priority == b.Priority && a.ReservedFor == b.ReservedFor && a.ReservedForLabel == b.ReservedForLabel &&
		a.End == b.End && a.EndedBy == b.EndedBy && a.DataBytes == b.DataBytes && slices.Equal(a.Requests, b.Requests)
}
