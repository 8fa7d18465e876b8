// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/flags"
)

// reapCmd is tenure reap.
type reapCmd struct {
	Prefixes  []string       `arg:"" optional:"" name:"prefix"`
	Name      []string       `sep:"none" placeholder:"NAME"`
	ListEvery *time.Duration `must:"be positive"`
	Once      bool
	Reason    string
	byFlag
	readerFlags
}

// reaped is a lock that was freed, or a session that was closed, as an object of --json.
type reaped struct {
	Time    string `json:"time"`
	Result  string `json:"result"` // reaped, or closed
	Lock    string `json:"lock,omitempty"`
	Session string `json:"session,omitempty"`
	Owner   string `json:"owner,omitempty"`
	Token   uint64 `json:"token,omitempty"`
	Host    string `json:"host,omitempty"`
}

// Run frees the locks of dead holders until a signal comes, or once.
func (f *reapCmd) Run(c *console, rest operands) error {
	f.Prefixes = append(f.Prefixes, rest.words...)
	if len(f.Prefixes)+len(f.Name) == 0 {
		return usage("no locks named: give a PREFIX of their names, or --name NAME; '' is all locks")
	}
	options := tenure.Options{Owner: f.operator()}
	o := tenure.ReapOptions{
		Prefixes: f.Prefixes, Names: f.Name, ListEvery: valueOf(f.ListEvery), Once: f.Once, Reason: f.Reason,
	}
	err := refused(options, func(ctx context.Context, client *tenure.Client) error { return client.Reap(ctx, o) })
	if err != nil {
		return err
	}
	v, err := f.client(c, &options, nil)
	if err != nil {
		return err
	}
	defer v.close()
	trouble, freed := &outages{console: c}, 0
	o.OnReaped = func(r tenure.Reaped) {
		trouble.tell(nil)
		freed++
		c.tellReaped(r)
	}
	o.OnError = func(err error) {
		if errors.Is(err, tenure.ErrUnreadable) {
			c.warn("%s", flags.OneLine(err))
			return
		}
		trouble.tell(err)
	}
	if f.Once {
		c.show("watching for what is dead: for a lease, if there is a holder")
	}
	err = v.client.Reap(v.ctx, o)
	c.clear()
	switch {
	case err != nil:
		return lookFailed(v.ctx, err)
	case f.Once && v.ctx.Err() != nil:
		return lookFailed(v.ctx, v.ctx.Err())
	case f.Once && freed == 0:
		c.say("nobody is dead that is watched")
	}
	return nil
}

func (c *console) tellReaped(r tenure.Reaped) {
	line := reaped{
		Time: instant(time.Now()), Result: "reaped", Lock: r.Name, Session: r.Session,
		Owner: r.Owner, Token: r.Token, Host: r.Host,
	}
	if r.Name == "" {
		line.Result = "closed"
		c.result(line, "closed session %s of %q, and freed all locks under it: "+
			"it has shown no sign of life for its lease", r.Session, r.Owner)
		return
	}
	c.result(line, "freed %q: %s has shown no sign of life for its lease", r.Name, holderText(r.Owner, r.Token))
}
