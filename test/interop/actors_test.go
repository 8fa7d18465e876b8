// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package interop_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/admin"
	"github.com/tenurelock/tenure/dynamostore"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/test/harness/proc"
	"github.com/tenurelock/tenure/test/harness/wait"
	"github.com/tenurelock/tenure/test/peers"
	"github.com/tenurelock/tenure/test/peers/wire"
)

// foreign is the factor for the lease of another client before Tenure takes over: that
// client keeps no margin for clocks that drift, so Tenure keeps the margin of both.
const foreign = (1 + 0.09) / (1 - 0.09) // 0.09 is tenure.Options.MaxClockDrift if zero

// actor is a client on the table: of Tenure in this process, or of any kind in its own process.
type actor struct {
	*peers.Process
	*tenure.Client
	lease   time.Duration
	leases  map[string]*tenure.Lease
	waiting atomic.Bool // it has begun to wait
	begun   map[string]chan outcome
}

// act makes an actor execute a command; with & in the background, once it is under way.
func (s *fixture) act(c command) outcome {
	a := s.actors[c.actor]
	switch ours := strings.HasPrefix(c.actor, "us"); {
	case c.actor == "table":
		return s.tableActs(c)
	case c.verb == "start" || a == nil:
		a = &actor{leases: map[string]*tenure.Lease{}, begun: map[string]chan outcome{}}
		s.mu.Lock()
		s.actors[c.actor] = a
		s.mu.Unlock()
		if !ours {
			a.Process = s.start(c.actor)
		}
		if c.verb == "start" {
			return outcome{}
		}
		if c.verb != "open" {
			s.act(command{actor: c.actor, verb: "open"})
		}
	}
	switch c.verb {
	case "join":
		return <-a.begun[c.lock]
	case "open":
		a.lease = c.duration("lease", leaseTime)
	}
	carryOut := s.weAct
	if a.Process != nil {
		carryOut = s.theyAct
	}
	if c.options["&"] == "" {
		return carryOut(a, c)
	}
	begun := make(chan outcome, 1)
	a.begun[c.lock] = begun
	a.waiting.Store(false)
	go func() { begun <- carryOut(a, c) }()
	if c.verb == "acquire" { // until it says that it waits, or for a few looks where it says nothing
		looks := patience
		if a.Process != nil {
			looks = 3 * refresh
		}
		wait.Within(s.Context(), looks, func() bool { return len(begun) > 0 || a.waiting.Load() })
	}
	return outcome{}
}

// start starts a process: of Tenure, of the other client, or of a third one.
func (s *fixture) start(name string) *peers.Process {
	kind := s.kind
	switch {
	case strings.HasPrefix(name, "tenure"):
		kind = peers.Tenure
	case strings.HasPrefix(name, "stranger"):
		kind = map[peers.Kind]peers.Kind{peers.Java: peers.Dynamolock, peers.Dynamolock: peers.Java}[kind]
	}
	// The first build of the Java program downloads its dependencies.
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Minute)
	defer cancel()
	program, err := peers.Make(ctx, kind)
	if errors.Is(err, peers.ErrNoToolchain) {
		enginetest.Missing(s, "the toolchain of Java", fmt.Sprint("scripts/setup installs it: ", err))
	}
	var p *peers.Process
	if err == nil {
		p, err = program.Start(ctx)
	}
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if p.Kill(); s.Failed() {
			s.Logf("%s wrote:\n%s", name, p.Stderr())
		}
	})
	return p
}

// opening is the request by which a process opens its client.
func (s *fixture) opening(c command) wire.Request {
	lease := c.duration("lease", leaseTime)
	r := wire.Request{
		Command: wire.Open, Endpoint: s.url, Table: s.table.Name, Owner: c.actor,
		LeaseMs: peers.Milliseconds(lease), HeartbeatMs: peers.Milliseconds(c.duration("heartbeat", lease/5)),
	}
	if strings.HasPrefix(c.actor, "tenure") {
		r.Shared, r.RefreshMs, r.CallTimeoutMs = string(s.kind), peers.Milliseconds(refresh), peers.Milliseconds(lease/5)
	}
	return r
}

// theyAct sends a command to a process. Its verbs are the commands of package wire, and try.
func (s *fixture) theyAct(a *actor, c command) outcome {
	r := wire.Request{Command: c.verb, Name: c.lock}
	switch c.verb {
	case "kill":
		a.Kill()
		return outcome{}
	case wire.Open:
		r = s.opening(c)
	case wire.Acquire, "try":
		r.Command, r.TryOnly, r.RefreshMs = wire.Acquire, c.verb == "try", peers.Milliseconds(refresh)
		if !r.TryOnly {
			r.WaitMs = peers.Milliseconds(c.duration("wait", patience))
		}
		r.ReplaceData, r.DeleteOnRelease = aws.Bool(c.options["replace"] != ""), aws.Bool(c.options["delete"] != "")
		r.UpdateExisting = c.options["update"] != ""
		if colour := c.options["colour"]; colour != "" {
			r.Attributes = map[string]string{"colour": colour}
		}
	case wire.Release:
		if c.options["delete"] != "" {
			r.Delete = aws.Bool(true)
		}
	}
	if data, given := c.options["data"]; given {
		bytes := []byte(data)
		r.Data = &bytes
	}
	ctx, cancel := context.WithTimeout(s.Context(), wait.Bound)
	defer cancel()
	before := proc.Monotonic()
	answer, err := a.Do(ctx, r)
	o := outcome{how: answer.Kind, sent: answer.SentNs, got: answer.GotNs, fields: map[string]string{}}
	switch refused := (*peers.Refused)(nil); {
	case errors.Is(err, peers.ErrExited):
		return outcome{how: "exited"}
	case errors.As(err, &refused):
		o.text = answer.Class + ": " + answer.Message
	case err != nil:
		s.Errorf("%s %s: %v", c.actor, c.verb, err)
	}
	if after := proc.Monotonic(); o.sent < before || o.got < o.sent || after < o.got {
		s.Errorf("%s has another clock: %d to %d within %d to %d", c.actor, o.sent, o.got, before, after)
	}
	for name, value := range answer.Attributes {
		o.fields[name] = value
	}
	o.fields["owner"] = answer.Owner
	for name, is := range map[string]*bool{"present": answer.Present, "released": answer.Released, "holds": answer.Holds} {
		if is != nil {
			o.fields[name] = strconv.FormatBool(*is)
		}
	}
	if answer.Data != nil {
		o.fields["data"] = string(*answer.Data)
	}
	if answer.Token != nil {
		s.granted(c.lock, *answer.Token)
	}
	for _, lock := range answer.Locks {
		o.fields[lock.Name] = lock.Owner
	}
	return o
}

// granted compares a token of Tenure with the one before.
func (s *fixture) granted(lock string, token uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token <= s.tokens[lock] {
		s.Errorf("%s: token %d after %d", lock, token, s.tokens[lock])
	}
	s.tokens[lock] = token
}

// weAct makes a client of Tenure in this process execute a command.
func (s *fixture) weAct(a *actor, c command) outcome {
	ctx, cancel := context.WithTimeout(s.Context(), c.duration("wait", patience))
	defer cancel()
	o := outcome{fields: map[string]string{}}
	s.mu.Lock()
	lease := a.leases[c.lock]
	s.mu.Unlock()
	var err error
	switch c.verb {
	case "open":
		s.openOurs(a, c)
	case "acquire", "try":
		take := a.Acquire
		if c.verb == "try" {
			take = a.TryAcquire
		}
		options := tenure.AcquireOptions{History: c.options["history"] != ""}
		if data, given := c.options["data"]; given {
			options.Data = []byte(data)
		}
		if lease, err = take(ctx, c.lock, &options); err == nil {
			o.got = proc.Monotonic()
			o.sent = o.got // waiters are not asked how long it took
			s.mu.Lock()
			a.leases[c.lock] = lease
			s.mu.Unlock()
			s.granted(c.lock, lease.Token())
			if shown := s.row(c.lock).text("fencingToken"); shown != fmt.Sprint(lease.Token()) {
				s.Errorf("the row of %s shows the token %s, the lease %d", c.lock, shown, lease.Token())
			}
			if before, ok := lease.Previous(); ok {
				o.fields["before"], o.fields["end"], o.fields["left"] = before.Owner, before.End, string(before.Data)
			}
		}
	case "release":
		o.sent = proc.Monotonic()
		err = lease.Release(ctx)
		o.got = proc.Monotonic()
	case "heartbeat":
		err = lease.Renew(ctx)
	case "check":
		err = lease.Check()
	case "ended":
		<-lease.Context().Done()
		err = context.Cause(lease.Context())
	case "write":
		err = lease.SetData(ctx, []byte(c.options["data"]))
	case "step-down":
		err = a.StepDown(ctx, c.lock, &tenure.StepDownOptions{Reason: "a test"})
	case "transfer":
		err = a.StepDown(ctx, c.lock, &tenure.StepDownOptions{To: c.options["to"], Reason: "a test"})
	case "revoke":
		err = admin.Revoke(ctx, a.Client, c.lock, "a test")
	case "status":
		var st tenure.Status
		if st, err = a.Status(ctx, c.lock); err == nil {
			o.fields = map[string]string{
				"held": fmt.Sprint(st.Held), "state": st.State, "owner": st.Owner, "lease": st.Lease.String(),
				"data": string(st.Data), "for": st.ReservedFor, "token": fmt.Sprint(st.Token),
				"asked": fmt.Sprint(st.Request != nil), "end": st.End, "host": st.Host,
			}
		}
	default:
		err = fmt.Errorf("no verb %s", c.verb)
	}
	var held *tenure.HeldError
	switch {
	case err == nil:
		return o
	case errors.Is(err, context.DeadlineExceeded):
		o.how = "deadline"
	case errors.As(err, &held):
		o.how, o.fields["owner"], o.fields["free"] = "held", held.Owner, held.FreeIn.String()
		s.mu.Lock()
		of := s.actors[held.Owner]
		s.mu.Unlock()
		if held.FreeIn > 0 && of != nil && held.FreeIn.Seconds() <= foreign*of.lease.Seconds() {
			o.fields["free"] = "in-time"
		}
	case errors.Is(err, tenure.ErrForeign):
		o.how = "foreign"
	case errors.Is(err, tenure.ErrSteppedDown):
		o.how = "stepped-down"
	default:
		o.how = "other"
	}
	o.text = err.Error()
	return o
}

// openOurs opens a client of Tenure. Parts of its lease that requests take are long enough for a
// busy machine.
func (s *fixture) openOurs(a *actor, c command) {
	lease := c.duration("lease", leaseTime)
	var err error
	a.Client, err = tenure.New(s.store(), &tenure.Options{
		Owner: c.actor, LeaseDuration: lease, HeartbeatPeriod: lease / 5, RequestTimeout: lease / 5,
		RefreshPeriod: c.duration("refresh", refresh), StopTimeout: c.duration("stop", 0),
		OnEvent: func(e tenure.Event) {
			if e.Kind == tenure.EventWaiting {
				a.waiting.Store(true)
			}
		},
	})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), patience)
		defer cancel()
		_ = a.Close(ctx) // reports leases that a script left behind on purpose
	})
}

func (s *fixture) store() *dynamostore.Store {
	options := s.options
	store, err := dynamostore.Open(s.Context(), s.table.DB, s.table.Name, &options)
	if err != nil {
		s.Fatal(err)
	}
	return store
}

// tableActs reads the table, or describes it.
func (s *fixture) tableActs(c command) (o outcome) {
	switch c.verb {
	case "other-dialect": // Tenure writes the one of the other client
		s.options.Dialect = map[dynamostore.Dialect]dynamostore.Dialect{
			dynamostore.Java: dynamostore.Dynamolock, dynamostore.Dynamolock: dynamostore.Java,
		}[s.options.Dialect]
	case "own": // without the marks of a shared one
		s.options.SharedTable = false
	case "keep": // a row, to compare it later
		s.kept[c.lock] = s.row(c.lock)
	case "row":
		o.how, o.fields = "none", map[string]string{}
		for name := range s.row(c.lock) {
			o.how, o.fields[name] = "ok", cmp.Or(s.row(c.lock).text(name), "something")
		}
	case "watch":
		s.watches[c.lock] = s.watch(c.lock)
	case "beats": // of the lock's holder
		s.watches[c.lock].beats(s, 2)
	case "taken":
		return s.taken(c)
	default:
		o.how, o.text = "other", "no verb "+c.verb
	}
	return o
}

// unread is the other client's lease for a row that it cannot read.
func (s *fixture) unread(lease string) string {
	if s.kind == peers.Java {
		return fmt.Sprintf("java.lang.NumberFormatException: For input string: %q", lease)
	}
	return fmt.Sprintf("duration %q", lease)
}

// item is an item of the table.
type item map[string]types.AttributeValue

// row returns an item, nil if it is missing.
func (s *fixture) row(name string) item {
	out, err := s.table.DB.GetItem(s.Context(), s.get(name))
	if err != nil {
		s.Error(err)
		return nil
	}
	return out.Item
}

func (s *fixture) get(name string) *dynamodb.GetItemInput {
	return &dynamodb.GetItemInput{
		TableName: &s.table.Name, ConsistentRead: aws.Bool(true),
		Key: map[string]types.AttributeValue{dynamostore.DefaultPartitionKey: &types.AttributeValueMemberS{Value: name}},
	}
}

// text returns what is in an attribute, empty if it is missing or has another type.
func (i item) text(attribute string) string {
	switch v := i[attribute].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	case *types.AttributeValueMemberB:
		return string(v.Value)
	}
	return ""
}
