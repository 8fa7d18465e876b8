// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package zkstore

import (
	"errors"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/zkstore/internal/wire"
)

// Describe finds what is there, and leaves nothing behind.
func TestDescribe(t *testing.T) {
	address := enginetest.Shared(t, enginetest.ZooKeeper, "zookeeper")
	above := rootOf(t)
	o := Options{Root: above + "/locks", User: "app", Password: "secret"}
	describe := func(o Options) Description {
		t.Helper()
		d, err := Describe(t.Context(), []string{address}, &o)
		if err != nil || d.Session != DefaultSession || d.Short || d.Voters != 0 {
			t.Errorf("%+v, %v", d, err)
		}
		return d
	}
	for range 2 {
		if d := describe(o); d.Exists || d.Denied != nil || d.Open {
			t.Errorf("before there is anything: %+v", d)
		}
	}
	s, err := New([]string{address}, &o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mustClaim(t, s, "lock")
	if d := describe(o); !d.Exists || d.Denied != nil || d.Open {
		t.Errorf("of its own: %+v", d)
	}
	names, err := s.ask(t.Context(), wire.GetChildren(o.Root, false))
	if err != nil {
		t.Fatal(err)
	}
	if children, err := names[0].Children(); err != nil || len(children) != 1 {
		t.Errorf("children %v, %v", children, err)
	}
	other := o
	other.Password = "wrong"
	if d := describe(other); !d.Exists || d.Denied == nil || !strings.Contains(d.Denied.Error(), "belong to another user") {
		t.Errorf("of another user: %+v", d)
	}
	other.Root = above + "/theirs/deep"
	if d := describe(other); d.Exists || d.Denied == nil {
		t.Errorf("below a node of another user: %+v", d)
	}
	if d := describe(Options{Root: rootOf(t)}); d.Exists || d.Denied != nil || !d.Open {
		t.Errorf("without a user: %+v", d)
	}
	denied, err := New([]string{address}, &other)
	if err != nil {
		t.Fatal(err)
	}
	defer denied.Close()
	_, _, err = denied.Claim(t.Context(), held("lock"))
	if !errors.Is(err, driver.ErrPermanent) || !errors.Is(err, driver.ErrNotApplied) || !strings.Contains(err.Error(), "theirs is not there, and this user may not make it") {
		t.Errorf("a claim below a node of another user: %v", err)
	}
}

func TestVoters(t *testing.T) {
	config := "server.1=10.0.0.1:2888:3888:participant;0.0.0.0:2181\nserver.2=10.0.0.2:2888:3888;2181\nserver.3=10.0.0.3:2888:3888:observer;2181\nversion=0"
	if n := voters(config); n != 2 {
		t.Errorf("%d", n)
	}
}
