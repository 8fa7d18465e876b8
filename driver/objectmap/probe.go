// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package objectmap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/tenurelock/tenure/driver"
)

// busyTries is how often the trial sends a write that finds another write under way. A
// server that always answers so cannot be tested, and could not be used.
const busyTries = 4

// Probe tests whether an engine keeps the conditions of writes, with writes that must
// fail. It takes 6 requests, and 1 or 2 that remove the object again, below prefix +
// "probe/".
//
// An error that matches driver.ErrPermanent names the fault: the engine must not be used
// for locks. Any other error says that the engine could not be tested. plainDelete says
// that it deletes without a condition, which a [Store] can handle.
//
// It cannot find a race: in an engine that checks the condition first and writes later, or an
// engine whose conditions hold only for requests to the same server. "tenure doctor" tries
// the first.
func Probe(ctx context.Context, objects Objects, prefix string) (plainDelete bool, err error) {
	t := &trial{ctx: ctx, objects: objects, name: prefix + probes + rand.Text()}
	err = t.run()
	plainDelete, left := t.clean(err)
	if err == nil {
		err = left
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return false, fmt.Errorf("trial of the store with object %q: %w", t.name, err)
	}
	return plainDelete, err
}

// trial is one run of a probe.
type trial struct {
	ctx     context.Context //nolint:containedctx // of one call
	objects Objects
	name    string
	tag     string // the object's; empty if it is absent
	former  string // the object's before it was replaced
}

func (t *trial) run() error {
	const first, second = "tenure probe 1", "tenure probe 2"
	created, err := t.put(t.name, first, "")
	switch {
	case errors.Is(err, ErrMismatch):
		return unsound("the server refuses to create an object that is absent")
	case err != nil:
		return err
	case created == "":
		return unsound("the server gives a written object no tag")
	}
	t.tag = created
	if err := t.refused(t.name, second, "", "the server overwrote an object that it was to create only if absent"); err != nil {
		return err
	}
	swapped, err := t.put(t.name, second, created)
	switch {
	case errors.Is(err, ErrMismatch):
		return unsound("the server refuses to replace an object under its own tag")
	case err != nil:
		return err
	case swapped == created:
		return unsound("the server gave an object the same tag after its content had changed")
	}
	t.tag, t.former = swapped, created
	if err := t.refused(t.name, first, created, "the server replaced an object although its tag did not match the condition"); err != nil {
		return err
	}
	if err := t.refused(t.name+"-absent", first, swapped, "the server created an object that it was to replace only if its tag matched"); err != nil {
		return err
	}
	body, tag, err := t.objects.Get(t.ctx, t.name)
	switch {
	case errors.Is(err, driver.ErrNotFound):
		return unsound("the server does not return an object that was just written")
	case err != nil:
		return err
	case string(body) != second:
		return unsound("the server does not return what was last written")
	case tag != swapped:
		return unsound("the server returns an object with another tag than it gave the write")
	}
	return nil
}

// put writes, again while another write is under way.
func (t *trial) put(name, body, tag string) (newTag string, err error) {
	for range busyTries {
		if newTag, err = t.objects.Put(t.ctx, name, []byte(body), tag); !errors.Is(err, ErrBusy) {
			break
		}
	}
	return newTag, err
}

// refused makes a write that must fail, and returns the fault if it does not.
func (t *trial) refused(name, body, tag, fault string) error {
	newTag, err := t.put(name, body, tag)
	switch {
	case err == nil:
		if name != t.name {
			_ = t.objects.Delete(t.ctx, name, "") // an error is reported below
		}
		t.tag = newTag
		return unsound(fault)
	case errors.Is(err, ErrMismatch):
		return nil
	}
	return err
}

// clean removes the object. After a good trial it tries the former tag first.
func (t *trial) clean(failed error) (plainDelete bool, err error) {
	if t.tag == "" {
		return false, nil
	}
	if failed != nil {
		_ = t.objects.Delete(t.ctx, t.name, "") // the trial has an error already
		return false, nil
	}
	switch err := t.objects.Delete(t.ctx, t.name, t.former); {
	case err == nil:
		return true, nil
	case errors.Is(err, errors.ErrUnsupported): // the engine knows no such deletion
		return true, t.objects.Delete(t.ctx, t.name, "")
	case !errors.Is(err, ErrMismatch):
		return false, err
	}
	if err := t.objects.Delete(t.ctx, t.name, t.tag); err != nil && !errors.Is(err, ErrMismatch) {
		return false, err
	}
	return false, nil
}
