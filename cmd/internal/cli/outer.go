// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/tenurelock/tenure/cmd/internal/storeurl"
	"github.com/tenurelock/tenure/rwlock"
	"github.com/tenurelock/tenure/semaphore"
)

// outer is the tenure under which this process was started, by its environment: see
// [command.environment]. It ends only when this process has. The zero value is none.
type outer struct {
	lock, owner string
	token       uint64
}

// outerOf reads the environment of a process that uses a store, by its URL.
func outerOf(store string) outer {
	at, err := storeurl.Parse(os.Getenv("TENURE_STORE"))
	if err != nil || at.URL() != store {
		return outer{}
	}
	token, err := strconv.ParseUint(os.Getenv("TENURE_TOKEN"), 10, 64)
	if err != nil {
		return outer{}
	}
	return outer{os.Getenv("TENURE_LOCK"), os.Getenv("TENURE_OWNER"), token}
}

// is says whether a lock is held by the outer tenure.
func (o outer) is(lock, owner string, token uint64) bool {
	return token > 0 && o == outer{lock, owner, token}
}

// holder names who holds a lock.
func (o outer) holder(lock, owner string, token uint64) string {
	text := holderText(owner, token)
	if o.is(lock, owner, token) {
		text += ", the command that started this one"
	}
	return text
}

// among says whether the outer tenure has a part of what many hold.
func (o outer) among(name string) bool {
	of, _, ok := semaphore.ParseLockName(o.lock)
	return o.lock == name || ok && of == name
}

// full says who has the slots of a semaphore, and whether the outer tenure has all of them.
func (o outer) full(name string, e *semaphore.FullError) (text string, own bool) {
	text = e.Error()
	for _, h := range e.Holders {
		if o.is(semaphore.LockName(name, h.Slot), h.Owner, h.Token) {
			return fmt.Sprintf("%s; the command that started this one has slot %d", text, h.Slot), len(e.Holders) == 1
		}
	}
	return text, false
}

// busy says who reads or writes, and whether it is the outer tenure that is in the way: a
// writer that waits for it may give up. It goes by the owner, since the token in the
// environment is that of no record.
func (o outer) busy(name string, e *rwlock.BusyError) (text string, own bool) {
	text = e.Error()
	if o.lock != name {
		return text, false
	}
	is := func(h rwlock.Holder) bool { return o.owner == h.Owner }
	own = e.Writer != nil && is(*e.Writer) || e.Writer == nil && slices.ContainsFunc(e.Readers, is)
	if own || slices.ContainsFunc(e.Readers, is) {
		text += fmt.Sprintf("; %q is the command that started this one", o.owner)
	}
	return text, own
}

// waitsWithoutEnd warns of a wait for the outer tenure, with --quiet too.
func (c *console) waitsWithoutEnd(waiting, whose string) {
	c.warn("%s without end%s: it ends only after this one; take another lock here, or none", waiting, whose)
}
