// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"container/list"
	"crypto/sha256"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/tenurelock/tenure/server/access"
)

// limiter counts what each caller uses. Its methods may be called concurrently.
type limiter struct {
	of Limits

	mu         sync.Mutex
	principals map[string]*account // as many as the file has names
	addresses  map[string]*list.Element
	recent     list.List // of addresses, the latest in front
}

// account is what one principal uses.
type account struct {
	calls, beats          bucket
	waits, onWire, bodies int64 // in progress; bodies in bytes
}

// address is what comes from one address without a good token.
type address struct {
	name          string
	calls, failed bucket
	leads         bucket               // reads of who leads
	guesses       bucket               // wrong tokens, each once
	wrong         [16]sum              // the latest ones
	next          int                  // where the next one goes
	good          map[string]time.Time // when a principal has shown its token last
}

// sum is the hash of a token.
type sum = [sha256.Size]byte

const (
	// goodFor is for how long a principal is known by an address: its token is no guess.
	goodFor = time.Hour
	// maxGood bounds how many principals an address is known for.
	maxGood = 1000
)

// maxAddresses bounds how many addresses are remembered: the latest ones.
const maxAddresses = 10_000

func newLimiter(of Limits) *limiter {
	return &limiter{of: of, principals: map[string]*account{}, addresses: map[string]*list.Element{}}
}

// bucket has tokens that come with time. The zero value is a full one.
type bucket struct {
	used float64 // tokens that have not come back yet
	at   time.Time
}

// take takes n tokens, if there are that many; otherwise it returns when there will be. There
// are never more than most; a call for more takes all.
func (b *bucket) take(n, rate, most float64) (wait time.Duration) {
	if wait = b.wait(n, rate, most); wait == 0 {
		b.used += min(n, most)
	}
	return wait
}

// wait returns when there will be n tokens, and takes none.
func (b *bucket) wait(n, rate, most float64) time.Duration {
	now := time.Now()
	b.used = max(0, b.used-rate*now.Sub(b.at).Seconds())
	b.at = now
	if lack := b.used + min(n, most) - most; lack > 1e-9 {
		return time.Duration(math.Ceil(lack / rate * float64(time.Second)))
	}
	return 0
}

func (l *limiter) account(principal string) *account {
	a := l.principals[principal]
	if a == nil {
		a = &account{}
		l.principals[principal] = a
	}
	return a
}

// spend takes a unit from a bucket of calls, and returns a problem with these words if it is empty.
func (l *limiter) spend(b *bucket, words string, args ...any) error {
	if wait := b.take(1, l.of.Calls, 2*l.of.Calls); wait > 0 {
		return problemf(limited, words, append(args, l.of.Calls)...).after(wait)
	}
	return nil
}

// call counts a call of a principal.
func (l *limiter) call(principal string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spend(&l.account(principal).calls, "principal %q makes more than %v calls a second, and nothing was done: "+
		"make fewer calls, and wait with wait_ms instead of polling", principal)
}

// openCall counts a call that needs no token.
func (l *limiter) openCall(from string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spend(&l.address(from).calls, "more than %v calls a second come from your address without "+
		"a token: make fewer calls")
}

// leaderCall counts a read of who leads a public lock.
func (l *limiter) leaderCall(from string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.spend(&l.address(from).leads, "more than %v calls of /v1/leader a second come from your address without a "+
		"token: ask for fewer names")
}

// under counts n units as in progress until done is called.
func (l *limiter) under(way *int64, n int64) (done func()) {
	*way += n
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		*way -= n
	}
}

// perCall is how many records a call may read and count as one call. A call that has read
// more counts as several: later calls wait for that, for at most maxDebt seconds.
const (
	perCall = 100
	maxDebt = 60
)

// read counts what a call of a principal has read.
func (l *limiter) read(principal string, records int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.account(principal).calls
	b.used = min(b.used+float64(max(0, records-perCall))/perCall, maxDebt*l.of.Calls)
}

// beats counts n heartbeats or releases of a principal, until done is called.
func (l *limiter) beats(principal string, n int) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(principal)
	if a.onWire > 0 && a.onWire+int64(n) > int64(l.of.BeatsAtOnce) {
		return nil, problemf(limited, "principal %q has %d heartbeats and releases in progress, of at most %d, and "+
			"nothing was done: send the same call again", principal, a.onWire, l.of.BeatsAtOnce).after(retrySoon)
	}
	if wait := a.beats.take(float64(n), l.of.Beats, 2*l.of.Beats); wait > 0 {
		return nil, problemf(limited, "principal %q sends more than %v heartbeats and releases a second, and nothing was "+
			"done: send the same call again", principal, l.of.Beats).after(wait)
	}
	return l.under(&a.onWire, int64(n)), nil
}

// wait counts a call of a principal that waits, until done is called.
func (l *limiter) wait(principal string) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(principal)
	if a.waits >= int64(l.of.Waits) {
		return nil, problemf(limited, "principal %q waits with %d calls at once, the limit: end one, or call "+
			"without waiting", principal, a.waits).after(retrySoon)
	}
	return l.under(&a.waits, 1), nil
}

// body counts the bytes of a principal's body as in progress until done is called.
func (l *limiter) body(principal string, size int64) (done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(principal)
	if a.bodies > 0 && a.bodies+size > maxBodies {
		return nil, problemf(limited, "principal %q has bodies of %d bytes in progress, of at most %d, and nothing was done: "+
			"send the same call again", principal, a.bodies, maxBodies).after(retrySoon)
	}
	return l.under(&a.bodies, size), nil
}

// address returns what comes from an address, or a network of IPv6, and makes it the latest.
func (l *limiter) address(name string) *address {
	name = access.Network(name)
	if e := l.addresses[name]; e != nil {
		l.recent.MoveToFront(e)
		return e.Value.(*address)
	}
	a := &address{name: name}
	l.addresses[name] = l.recent.PushFront(a)
	if l.recent.Len() > maxAddresses {
		delete(l.addresses, l.recent.Remove(l.recent.Back()).(*address).name)
	}
	return a
}

// right accepts a right token, unless it may be a guess: a token of a principal that has not
// used this address before, after more wrong tokens than allowed. Programs that share an address
// with a guesser keep their locks, because they have used it before. A program with an old token
// sends the same one again and again, which counts as one guess.
func (l *limiter) right(from, principal string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, now := l.address(from), time.Now()
	if at, known := a.good[principal]; !known || now.Sub(at) > goodFor {
		if wait := a.guesses.wait(1, l.of.FailedTokens/60, l.of.FailedTokens); wait > 0 {
			return l.tooMany(wait)
		}
		for name, at := range a.good {
			if len(a.good) >= maxGood || now.Sub(at) > goodFor { // any, rather than no bound
				delete(a.good, name)
			}
		}
		if a.good == nil {
			a.good = map[string]time.Time{}
		}
	}
	a.good[principal] = now
	return nil
}

// failed counts a token that is not known.
func (l *limiter) failed(from, secret string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a, of := l.address(from), sha256.Sum256([]byte(secret))
	if secret != "" && !slices.Contains(a.wrong[:], of) {
		a.wrong[a.next] = of
		a.next = (a.next + 1) % len(a.wrong)
		a.guesses.take(1, l.of.FailedTokens/60, l.of.FailedTokens)
	}
	if wait := l.address(from).failed.take(1, l.of.FailedTokens/60, l.of.FailedTokens); wait > 0 {
		return l.tooMany(wait)
	}
	return nil
}

// tooMany is the same problem for a wrong and a right token, so that a guesser cannot tell them
// apart.
func (l *limiter) tooMany(wait time.Duration) error {
	return problemf(limited, "more than %v unknown tokens a minute come from your address, and this one was "+
		"not accepted there recently: check that it is the token that the operator gave you", l.of.FailedTokens).after(wait)
}
