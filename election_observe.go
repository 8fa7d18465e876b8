// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"
	"iter"
)

// Observe yields the leader, now and after every change, until ctx ends or the loop
// is left. If nobody leads, it yields a Leader for which None is true. It yields
// the latest state: a slow loop skips tenures, which shows in the tokens, and
// delays nobody. An error of the store is yielded once, and observing goes on. When ctx
// ends, so does the loop, without an error. When the client is closed, the last error is
// [ErrClosed].
//
// All observers and contenders of a process share the polls of a record.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		if err := checkKey(e.name); err != nil {
			yield(Leader{}, wrap("observe", e.name, err))
			return
		}
		k, err := e.c.tracker(e.name)
		if err != nil {
			yield(Leader{}, wrap("observe", e.name, err))
			return
		}
		defer k.leave()
		o := k.observe()
		defer k.unobserve(o)

		var last Leader
		first := true
		for {
			s, err := k.observed(o)
			switch l := s.leader(); {
			case err != nil:
				if !yield(Leader{}, wrap("observe", e.name, err)) {
					return
				}
				continue // something may have been seen besides
			case s.known && s.looked >= o.begun && (first || !l.same(last)):
				first, last = false, l
				if !yield(l, nil) {
					return
				}
				continue // the state may have changed meanwhile
			}
			if err := o.wait(ctx, k.c, s); err != nil {
				if ctx.Err() == nil { // the caller knows that it has ended ctx
					yield(Leader{}, wrap("observe", e.name, err))
				}
				return
			}
		}
	}
}

func (l Leader) same(m Leader) bool {
	return l.Token == m.Token && l.Owner == m.Owner && string(l.Data) == string(m.Data)
}
