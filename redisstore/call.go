// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/tenurelock/tenure/driver"
)

// answer is what a script returned: a word, and what the word says.
type answer struct {
	word, life, id string
	rest           []rueidis.RedisMessage // behind these, or all but the word if the script has refused the store
}

// call runs a script for an operation. The first call of a store examines the server.
func (s *Store) call(ctx context.Context, sc *script, keys []string, args ...string) (answer, error) {
	out, err := s.run(ctx, func(ctx context.Context) ([]rueidis.RedisMessage, error) {
		client, err := s.connected(ctx, true)
		if err != nil {
			return nil, err
		}
		return execute(ctx, client, sc, keys, s.arguments(args))
	})
	if err != nil {
		return answer{}, err
	}
	return s.sorted(out)
}

// arguments puts what each script needs in front.
func (s *Store) arguments(args []string) []string {
	id := ""
	if p := s.id.Load(); p != nil {
		id = *p
	}
	return append([]string{id, s.is, s.least, s.most, s.lag}, args...)
}

// run does something with the server in a goroutine, which may outlive the context: the client waits
// for a connection that another call has begun, whatever the context says.
func (s *Store) run(
	ctx context.Context, do func(context.Context) ([]rueidis.RedisMessage, error),
) ([]rueidis.RedisMessage, error) {
	if err := s.life.Ready(ctx); err != nil {
		return nil, driver.NotApplied(err)
	}
	if s.replaced.Load() {
		return nil, driver.NotApplied(s.gone())
	}
	type result struct {
		out []rueidis.RedisMessage
		err error
	}
	bound, done := s.life.Bound(ctx)
	answered := make(chan result, 1)
	go func() {
		defer done()
		// Without its deadline: the client would break the connection of all calls with it.
		out, err := do(undated{bound})
		answered <- result{out, err}
	}()
	select {
	case r := <-answered:
		return r.out, s.failed(ctx, r.err)
	case <-bound.Done():
	}
	select {
	case r := <-answered: // the context ended with the call
		return r.out, s.failed(ctx, r.err)
	default:
		return nil, s.failed(ctx, bound.Err())
	}
}

// undated is a context that ends with another one, and does not say when. It must have an end: otherwise the
// client uses an idle connection without a reader, which is faster, but notices a server that has restarted only by a
// call whose outcome is then unknown.
type undated struct{ context.Context }

func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// execute runs a script. A server that does not know it, after a restart or a failover, gets its text.
func execute(
	ctx context.Context, client rueidis.Client, sc *script, keys, args []string,
) ([]rueidis.RedisMessage, error) {
	n := int64(len(keys))
	out, err := client.Do(ctx, client.B().Evalsha().Sha1(sc.sha).Numkeys(n).Key(keys...).Arg(args...).Build()).ToArray()
	if e, is := rueidis.IsRedisErr(err); is && e.IsNoScript() {
		out, err = client.Do(ctx, client.B().Eval().Script(sc.text).Numkeys(n).Key(keys...).Arg(args...).Build()).ToArray()
	}
	return out, err
}

// refusals are the first words of the errors with which Redis refuses what it has not done, and
// advice. Any other error may be of a proxy that has lost the answer.
var refusals = map[string]struct {
	mark func(error) error
	do   string
}{
	"NOAUTH":      {driver.Permanent, "the server requires a password: name a user, and the password"},
	"WRONGPASS":   {driver.Permanent, "the user or its password is wrong, or the user is disabled"},
	"NOPERM":      {driver.Permanent, "grant the user what tenure table policy prints"},
	"OOM":         {driver.Throttled, "the memory of the server is full: raise maxmemory"},
	"BUSY":        {driver.Throttled, "a script keeps the server busy"},
	"LOADING":     {driver.Throttled, "the server is starting"},
	"READONLY":    {nil, "the server is a replica"},
	"MASTERDOWN":  {nil, "the server is a replica without its primary"},
	"CLUSTERDOWN": {nil, "the cluster does not serve this slot"},
	"NOREPLICAS":  {nil, "min-replicas-to-write is not met"},
	"MISCONF":     {nil, "the server cannot write to its disk"},
	"TRYAGAIN":    {nil, "the slot is moving"},
	"MOVED":       {nil, "the slot is elsewhere: add cluster=true to the URL"},
	"ASK":         {nil, "the slot is moving"},
	"WRONGTYPE":   {unreadableMark, "the key is no hash"},
}

func unreadableMark(err error) error { return fmt.Errorf("%w: %w", driver.ErrUnreadable, err) }

// failed marks an error with what is certain.
func (s *Store) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case s.life.Ended(): // not rueidis.ErrClosing, which also means that Sentinels have named another server
		return fmt.Errorf("%w (%w)", driver.ErrClosed, err)
	case errors.Is(err, errSorted):
		return err
	case ctx.Err() != nil && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)):
		return fmt.Errorf("redis: no answer: %w", ctx.Err())
	}
	if e, is := rueidis.IsRedisErr(err); is {
		text := e.Error()
		word, _, _ := strings.Cut(text, " ")
		if strings.HasPrefix(text, "The user executing the script can't") || strings.HasPrefix(text, "ACL failure in script") {
			word = "NOPERM" // as Redis 7.0 and Valkey 8 say it of a script
		}
		r, known := refusals[word]
		switch {
		case known:
			err = driver.NotApplied(fmt.Errorf("redis: %s: %w", r.do, err))
			if r.mark != nil {
				err = r.mark(err)
			}
			return err
		case strings.HasPrefix(text, "unknown command"), strings.HasPrefix(text, "DENIED"):
			return driver.NotApplied(driver.Permanent(fmt.Errorf("redis: the server lacks what the store needs: %w", err)))
		}
	}
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return driver.NotApplied(fmt.Errorf("redis: the server cannot be reached: %w", err))
	}
	return fmt.Errorf("redis: %w", err)
}

// errSorted is matched by errors that say already what is certain.
var errSorted = errors.New("sorted")

type sortedError struct{ error }

func (e sortedError) Unwrap() []error { return []error{e.error, errSorted} }

// gone is the error of a store that was replaced.
func (s *Store) gone() error {
	return driver.Replaced(fmt.Errorf("redis: the server no longer has the store %q that this program has used: it was "+
		"emptied, lost its data, or is another one; if the data cannot be restored, stop all programs, wait for the "+
		"longest lease, and run tenure table create", s.prefix))
}

// sorted returns the answer of a script, or why the store cannot be used.
func (s *Store) sorted(out []rueidis.RedisMessage) (a answer, err error) {
	text := func(i int) string {
		if i >= len(out) {
			return ""
		}
		t, _ := out[i].ToString()
		return t
	}
	a.word = text(0)
	switch a.word {
	case "stranger":
		err = driver.Permanent(errStranger)
	case "replica":
		err = errors.New("the server is a replica: name the primary, or the Sentinels")
	case "absent":
		if s.id.Load() != nil {
			s.replaced.Store(true)
			return a, driver.NotApplied(s.gone())
		}
		err = driver.Permanent(fmt.Errorf("the store %q does not exist: create it once with tenure table create, or with "+
			"redisstore.Create; if it has existed, stop all programs before, and wait for the longest lease", s.prefix))
	case "other":
		s.replaced.Store(true)
		return a, driver.NotApplied(s.gone())
	case "later":
		err = driver.Permanent(fmt.Errorf("the store %q has format %.20q, and this version knows %s: upgrade", s.prefix, text(1), format))
	case "settings":
		err = driver.Permanent(fmt.Errorf("the store %q was created with %q, and this program expects %q: all programs use "+
			"the same options, and the parameters of their URLs", s.prefix, text(1), s.is))
	case "replicas":
		err = fmt.Errorf("%s replicas are online and not behind by more than %s s, and writes need %s: %s",
			text(1), s.lag, s.needs(), "a primary that was cut off must not go on")
	case "unheard":
		err = fmt.Errorf("the replicas must first confirm what the server has sent to them: they do within a second, and "+
			"have not for %s s and 2", s.lag)
	default:
		a.life, a.id = text(1), text(2)
		if len(out) < 3 || a.life == "" || a.id == "" {
			return a, fmt.Errorf("redis: an answer %.40q cannot be understood", a.word)
		}
		if s.id.Load() == nil {
			s.id.CompareAndSwap(nil, new(strings.Clone(a.id)))
		}
		if s.waits == 0 {
			a.life = "" // a server that loses nothing goes on in its next life
		}
		a.rest = out[3:]
		return a, nil
	}
	return a, driver.NotApplied(fmt.Errorf("redis: %w", err))
}

func (s *Store) needs() string {
	if s.least == s.most {
		return "exactly " + s.most
	}
	return s.least + " to " + s.most
}

// current returns the record that an answer shows.
func (a answer) current(key string) (driver.Record, bool, error) {
	if len(a.rest) == 0 {
		return driver.Record{}, false, errors.New("redis: an answer lacks its record")
	}
	rec, found, err := decode(key, a.rest[0])
	if found && err == nil {
		rec.Life = a.life
	}
	return rec, found, err
}
