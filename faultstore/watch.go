// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package faultstore

import "github.com/tenurelock/tenure/driver"

// watching is a Store whose inner store is a Watcher. It is a type of its own
// so that a type assertion tells the truth about either.
type watching struct {
	*Store
	inner driver.Watcher
}

// Watch passes the watch on to the inner store, and its hints back, unless a
// fault or the black hole swallows them.
func (w *watching) Watch(key string, hint func()) (stop func(), err error) {
	entry, err := w.begin(Call{Op: OpWatch, Key: key})
	if err != nil {
		return nil, err
	}
	fault := w.decide(entry.Call)
	if fault.Effect == Applied {
		stop, err = w.inner.Watch(key, func() { w.hint(key, hint) })
	} else {
		err = fault.err()
	}
	w.end(entry, fault, reply{}, err)
	return stop, err
}

func (w *watching) hint(key string, hint func()) {
	entry, err := w.begin(Call{Op: OpHint, Key: key})
	if err != nil {
		return
	}
	fault := w.decide(entry.Call)
	switch {
	case fault.Effect != Applied:
	case fault.Before > 0:
		w.async(fault.Before, hint)
	default:
		hint()
	}
	w.end(entry, fault, reply{}, nil)
}

var (
	_ driver.Store   = (*watching)(nil)
	_ driver.Watcher = (*watching)(nil)
)
