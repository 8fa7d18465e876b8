// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"

	"github.com/tenurelock/tenure"
)

// releaseCmd is tenure release.
type releaseCmd struct {
	Name  string `arg:""`
	Force bool
	operatorFlags
}

// Run releases the lock of a dead holder, or takes it from a living one.
func (f *releaseCmd) Run(c *console) error {
	o, err := f.open(c, f.Name, heir{}, bellFlags{})
	if err != nil {
		return err
	}
	defer o.close()
	st, err := o.status()
	if err != nil {
		return err
	}
	holder := holderText(st.Owner, st.Token)
	if st.State != tenure.StateHeld && st.State != tenure.StateReserved {
		return o.notHeld(st)
	}
	begun := time.Now()
	r := result{Result: "released", Holder: holderOf(st)}
	force := f.Force && st.Session == "" // one under a session cannot be cut off alone
	switch {
	case st.Session != "":
		o.console.show("watching the session under which %s holds %q: it is closed when no sign of life has come for %v",
			holder, o.lock, round(st.Lease))
	case force:
		r.Result = "revoked"
		o.console.show("%s cannot renew %q from now on; it may be at work until its lease has run out, so the lock is "+
			"free in %v, and not before",
			holder, o.lock, round(st.Lease))
	default:
		o.console.show("watching %q, held by %s: it is released when no sign of life has come for %v; --force does not "+
			"wait for that",
			o.lock, holder, round(st.Lease))
	}
	if force {
		err = o.client.Revoke(o.ctx, o.lock, o.reason)
	} else {
		err = o.client.ReleaseDead(o.ctx, o.lock, o.reason)
	}
	if err != nil {
		return o.notDone(err, st)
	}
	took := time.Since(begun)
	r.Took = seconds(took)
	if now, err := o.status(); err == nil && now.Held {
		return o.taken(r, now, took)
	}
	if force {
		return o.done(r, "%q is free: revoked from %s, whose lease has run out after %v", o.lock, holder, round(took))
	}
	return o.done(r, "%q is free: %s has shown no sign of life for %v", o.lock, holder, round(st.Lease))
}

// taken tells that somebody has the lock already.
func (o *operator) taken(r result, now tenure.Status, took time.Duration) error {
	r.Next = holderOf(now)
	return o.done(r, "%s has lost %q; %s has it now, after %v", holderText(r.Holder.Owner, r.Holder.Token), o.lock,
		holderText(now.Owner, now.Token), round(took))
}
