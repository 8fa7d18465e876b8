// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/versioned"
)

// atOnce is how many bodies of a page are read at a time.
const atOnce = 16

// List returns the records whose key begins with prefix and comes after cursor. Each page
// lists the names of all objects below the prefix, since their order differs from the order
// of the keys, and reads its own bodies. Keys whose escaped form has more than 880 bytes
// are read for each page. Records that are created or deleted between two pages may or may
// not be seen.
func (s *Store) List(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	return s.list(ctx, prefix, cursor, func(page *driver.Page, f found) {
		if f.is.kept == 0 {
			versioned.AddTo(page, f.key, f.is)
		}
	})
}

// ListTokens returns the tokens of locks that were deleted where the engine deletes without
// a condition.
func (s *Store) ListTokens(ctx context.Context, prefix, cursor string) (driver.Page, error) {
	return s.list(ctx, prefix, cursor, func(page *driver.Page, f found) {
		if f.is.kept != 0 {
			page.Records = append(page.Records, driver.Record{Key: f.key, Token: f.is.kept})
		}
	})
}

// found is an object of a page.
type found struct {
	key, name string
	read      bool
	is        state
}

func (s *Store) list(ctx context.Context, prefix, cursor string, add func(*driver.Page, found)) (page driver.Page, err error) {
	if err := s.life.Ready(ctx); err != nil {
		return page, driver.NotApplied(err)
	}
	ctx, done := s.life.Bound(ctx)
	defer done()
	all, err := s.found(ctx, prefix, cursor)
	if err != nil {
		return page, driver.NotApplied(err)
	}
	if len(all) > s.options.PageSize {
		all = all[:s.options.PageSize]
		page.Cursor = all[len(all)-1].key
	}
	if err := s.readAll(ctx, all); err != nil {
		return driver.Page{}, err
	}
	for _, f := range all {
		add(&page, f)
	}
	return page, nil
}

// found returns the objects of keys that begin with prefix and come after cursor, in the
// order of the keys.
func (s *Store) found(ctx context.Context, prefix, cursor string) ([]found, error) {
	var all, unknown []found
	wanted := func(key string) bool { return strings.HasPrefix(key, prefix) && (cursor == "" || key > cursor) }
	err := s.each(ctx, namesOf(prefix), func(name string) {
		key, ok := keyOf(name)
		if !ok {
			key = name // foreign: it is returned as unreadable, under its name
		}
		if wanted(key) {
			all = append(all, found{key: key, name: name})
		}
	})
	if err == nil {
		err = s.each(ctx, hashed, func(name string) { unknown = append(unknown, found{name: name}) })
	}
	if err == nil {
		err = s.readAll(ctx, unknown)
	}
	if err != nil {
		return nil, err
	}
	for _, f := range unknown {
		switch f.key = f.is.key; {
		case f.key == "":
			f.key = f.name
		case nameOf(f.key) != f.name:
			f.is.err = fmt.Errorf("%w: object %q has the record of %q", driver.ErrUnreadable, f.name, f.key)
			f.key = f.name
		}
		if f.is.tag != "" && wanted(f.key) {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b found) int { return strings.Compare(a.key, b.key) })
	return all, nil
}

// each calls see with the names of all objects that begin with a prefix, below the store's
// prefix.
func (s *Store) each(ctx context.Context, prefix string, see func(name string)) error {
	for cursor := ""; ; {
		names, next, err := s.objects.Names(ctx, s.options.Prefix+prefix, cursor)
		if err != nil {
			return err
		}
		for _, name := range names {
			see(strings.TrimPrefix(name, s.options.Prefix))
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// readAll reads the objects that were not read yet. A deleted object has no tag.
func (s *Store) readAll(ctx context.Context, all []found) error {
	var wg sync.WaitGroup
	places := make(chan struct{}, atOnce)
	errs := make([]error, len(all))
	for i := range all {
		f := &all[i]
		if f.read {
			continue
		}
		places <- struct{}{}
		wg.Go(func() {
			f.is, errs[i] = s.look(ctx, f.key, s.options.Prefix+f.name)
			f.read = true
			<-places
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
