// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
	"github.com/tenurelock/tenure/driver/versioned"
)

// DefaultPrefix begins the names of a store whose options name no prefix.
const DefaultPrefix = "tenure/"

// Options are for one store. Nil means the defaults.
type Options struct {
	// Prefix begins the names of all objects of the store: "tenure/" if empty. Stores with
	// different prefixes have different locks. It ends with a slash, does not begin with
	// one, and has at most 100 letters, digits, and characters of _ . - /. It follows the
	// rules of [driver.CheckPrefix], no part of it begins with a dot, and only the first
	// part may be r or h. No other program may write below it.
	Prefix string

	// Trust says that the engine is known to keep the conditions of writes, so that the
	// store does not test it: see [Probe]. The store then assumes that deletions are
	// unconditional.
	Trust bool

	// PageSize is how many records List returns at once: 200 if zero.
	PageSize int
}

const (
	maxPrefixLen = 100
	prefixForm   = "it must end with a slash, have at most 100 letters, digits, and characters of _ . - in parts separated by single slashes, and no part may begin with a dot"
	pageSize     = 200
	// mostTries is how often a call writes: once more after a definite mismatch.
	mostTries = 2
)

func (o *Options) resolve() (Options, error) {
	var r Options
	if o != nil {
		r = *o
	}
	if r.Prefix == "" {
		r.Prefix = DefaultPrefix
	}
	if err := driver.CheckPrefix(r.Prefix, reserved); err != nil {
		return r, fmt.Errorf("prefix %.120q: %w: %s", r.Prefix, err, prefixForm)
	}
	odd := func(c rune) bool { return c != '/' && (c > '~' || !plain(byte(c))) }
	if at := strings.IndexFunc(r.Prefix, odd); at >= 0 {
		c, _ := utf8.DecodeRuneInString(r.Prefix[at:])
		return r, fmt.Errorf("prefix %.120q: it has %q at position %d: %s", r.Prefix, c, utf8.RuneCountInString(r.Prefix[:at])+1, prefixForm)
	}
	dir, slash := strings.CutSuffix(r.Prefix, "/")
	if !slash || dir == "" || len(r.Prefix) > maxPrefixLen || dir[0] == '/' || strings.Contains("/"+dir, "/.") {
		return r, fmt.Errorf("prefix %.120q: %s", r.Prefix, prefixForm)
	}
	if r.PageSize < 0 {
		return r, fmt.Errorf("page size %d: it must be 1 or more, or 0 for %d", r.PageSize, pageSize)
	}
	if r.PageSize == 0 {
		r.PageSize = pageSize
	}
	return r, nil
}

// Store keeps records in objects. It implements [driver.Store], [driver.Raiser] and
// [driver.TokenRetainer]. All methods may be called concurrently.
type Store struct {
	objects Objects
	options Options
	writer  versioned.Writer[state]
	known   versioned.Memory[state]
	life    *versioned.Life
	trial   chan struct{} // held by the call that tries the engine
	verdict atomic.Pointer[verdict]
}

// verdict is what a trial of the engine has found.
type verdict struct {
	unsound     error // it does not keep the conditions of writes
	plainDelete bool  // it deletes without a condition
}

var (
	_ driver.Store         = (*Store)(nil)
	_ driver.Raiser        = (*Store)(nil)
	_ driver.TokenRetainer = (*Store)(nil)
	_ driver.SlowWriter    = (*Store)(nil)
)

// New returns a store on objects, which it closes in the end. It sends nothing. Options may
// be nil.
func New(objects Objects, options *Options) (*Store, error) {
	o, err := options.resolve()
	if err != nil {
		return nil, err
	}
	s := &Store{objects: objects, options: o, life: versioned.NewLife(), trial: make(chan struct{}, 1)}
	if o.Trust {
		s.verdict.Store(&verdict{plainDelete: true})
	}
	s.writer = versioned.Writer[state]{
		Known:      &s.known,
		Ready:      s.Try,
		Read:       s.read,
		Write:      s.write,
		Usable:     func(is state) bool { return !is.cut },
		LookFirst:  true,
		LookUnseen: true,
		Tries:      mostTries,
	}
	return s, nil
}

// Try tests the engine with [Probe], unless this store has done so, or trusts it. Each
// write begins with it. An error that matches driver.ErrPermanent names the fault of the
// engine, and stays; after another error the next call tries again.
func (s *Store) Try(ctx context.Context) error {
	if err := s.life.Ready(ctx); err != nil {
		return err
	}
	if v := s.verdict.Load(); v != nil {
		return v.unsound
	}
	ctx, done := s.life.Bound(ctx)
	defer done()
	select {
	case s.trial <- struct{}{}:
		defer func() { <-s.trial }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if v := s.verdict.Load(); v != nil {
		return v.unsound
	}
	plainDelete, err := Probe(ctx, s.objects, s.options.Prefix)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return driver.NotApplied(err) // of the record nothing was written
	}
	s.verdict.Store(&verdict{unsound: err, plainDelete: plainDelete})
	return err
}

// Reach is [Store.Try] for a new store. A store that trusts its engine reads once, so that a
// wrong name or a missing permission is reported.
func (s *Store) Reach(ctx context.Context) error {
	if err := s.Try(ctx); err != nil || !s.options.Trust {
		return err
	}
	if _, err := s.Get(ctx, driver.OwnPrefix+"open", driver.Strong); err != nil && !errors.Is(err, driver.ErrNotFound) {
		return err
	}
	return nil
}

// Get returns the record of key. All reads are strong.
func (s *Store) Get(ctx context.Context, key string, _ driver.Consistency) (driver.Record, error) {
	if err := s.life.Ready(ctx); err != nil {
		return driver.Record{}, err
	}
	is, err := s.read(ctx, key)
	if err != nil {
		return driver.Record{}, err
	}
	return versioned.RecordOf(is)
}

// Claim writes next if its key is absent or released.
func (s *Store) Claim(ctx context.Context, next driver.Record) (now, prev driver.Record, err error) {
	return s.writer.Claim(ctx, next)
}

// Swap replaces prev by next if the stored version and token are those of prev.
func (s *Store) Swap(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.writer.Swap(ctx, prev, next)
}

// Raise is Swap to a token that is higher by any amount: see [driver.Raiser].
func (s *Store) Raise(ctx context.Context, prev, next driver.Record) (driver.Record, error) {
	return s.writer.Raise(ctx, prev, next)
}

// Delete removes the record of prev's key if its version and token are those of prev. Where
// the engine deletes without a condition, the object of a lock stays, and keeps its token.
func (s *Store) Delete(ctx context.Context, prev driver.Record) error {
	return s.writer.Delete(ctx, prev)
}

// SlowWrites implements [driver.SlowWriter].
func (s *Store) SlowWrites() {}

// KeepsTokens reports whether the engine is known to delete without a condition, so that
// deleted locks leave their tokens: after the first write, or [Store.Try].
func (s *Store) KeepsTokens() bool {
	v := s.verdict.Load()
	return v != nil && v.plainDelete
}

// Close ends the calls that are under way, with an unknown outcome, and closes the objects.
func (s *Store) Close() error {
	if !s.life.End() {
		return nil
	}
	return s.objects.Close()
}

// ObjectName returns the name of the object of a key, with the prefix.
func (s *Store) ObjectName(key string) string { return s.options.Prefix + nameOf(key) }

// Prefix returns with what the names of all objects of the store begin.
func (s *Store) Prefix() string { return s.options.Prefix }

// read returns the state of a record.
func (s *Store) read(ctx context.Context, key string) (state, error) {
	ctx, done := s.life.Bound(ctx)
	defer done()
	is, err := s.look(ctx, key, s.ObjectName(key))
	if err == nil {
		s.known.Note(key, is)
	}
	return is, err
}

// look reads an object. An empty key matches any record.
func (s *Store) look(ctx context.Context, key, name string) (state, error) {
	body, tag, err := s.objects.Get(ctx, name)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return state{}, nil
	case err == nil && tag == "":
		err = fmt.Errorf("object %q has %w", name, errNoTag)
	}
	if err != nil {
		return state{}, driver.NotApplied(err) // nothing was to be written
	}
	is := decode(key, body, tag)
	if is.err != nil {
		if !errors.Is(is.err, driver.ErrUnreadable) {
			is.err = fmt.Errorf("%w: %w", driver.ErrUnreadable, is.err)
		}
		is.err = fmt.Errorf("object %q: %w", name, is.err)
	}
	return is, nil
}

// write makes a step, and reads the object if its tag differs.
func (s *Store) write(ctx context.Context, key string, was state, step versioned.Step) (is state, missed bool, err error) {
	bound, done := s.life.Bound(ctx)
	defer done()
	if step.Remove {
		is, err = s.remove(bound, key, was)
	} else {
		is, err = s.put(bound, key, was, step.Record, recordcodec.Encode(step.Record))
	}
	if errors.Is(err, ErrMismatch) {
		is, err = s.read(ctx, key)
		return is, true, err
	}
	return is, false, err
}

// put writes a body. While another write of the object is under way it reads the object, and
// tries once more.
func (s *Store) put(ctx context.Context, key string, was state, rec driver.Record, text string) (state, error) {
	name := s.ObjectName(key)
	tag, err := s.objects.Put(ctx, name, []byte(text), was.tag)
	if errors.Is(err, ErrBusy) {
		is, lookErr := s.look(ctx, key, name)
		switch {
		case lookErr != nil:
			return state{}, lookErr
		case is.tag != was.tag:
			return state{}, ErrMismatch
		}
		tag, err = s.objects.Put(ctx, name, []byte(text), was.tag)
	}
	switch {
	case errors.Is(err, ErrMismatch):
		return state{}, err
	case errors.Is(err, ErrBusy):
		return state{}, driver.Throttled(driver.NotApplied(err))
	case err != nil:
		return state{}, err
	case tag == "":
		return state{}, fmt.Errorf("object %q was written, but has %w", name, errNoTag)
	}
	return state{rec: rec, tag: tag}, nil
}

// remove deletes the object, if it is still in the state.
func (s *Store) remove(ctx context.Context, key string, was state) (state, error) {
	name := s.ObjectName(key)
	switch {
	case !s.KeepsTokens():
		return state{}, s.objects.Delete(ctx, name, was.tag)
	case !strings.HasPrefix(key, driver.OwnPrefix):
		text, err := textOfGone(was.rec)
		if err != nil {
			return state{}, driver.NotApplied(err)
		}
		is, err := s.put(ctx, key, was, driver.Record{}, text)
		is.kept = was.rec.Token
		return is, err
	}
	// It is never written again.
	is, err := s.look(ctx, key, name)
	switch {
	case err != nil:
		return state{}, err
	case is.tag != was.tag:
		return state{}, ErrMismatch
	}
	if err := s.objects.Delete(ctx, name, ""); !errors.Is(err, ErrMismatch) {
		return state{}, err
	}
	return state{}, nil
}
