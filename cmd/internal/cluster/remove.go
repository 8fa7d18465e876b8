// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Remove takes a node out of the cluster, and its folder away. A member that leads is removed
// only with yes; one without which there would be no quorum is not. What another Remove of
// the same node has done already is not done again.
func (f *Folder) Remove(ctx context.Context, name string, yes bool, step Step) error {
	n, known := f.node(name)
	c, members, err := f.meet(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	i := slices.IndexFunc(members, func(m member) bool { return m.node == name })
	switch {
	case i < 0 && !known:
		return fmt.Errorf("there is no node %.60q: the members are %s", name, names(members))
	case i < 0:
		step("%s is no member", name)
	default:
		if err := c.removeMember(ctx, members, members[i], yes, step); err != nil {
			return err
		}
		step("%s is no member any more: stop etcd there, and empty %s before it joins again", name, f.plan.Settings.DataDir)
	}
	if !known {
		return nil
	}
	if err := os.RemoveAll(filepath.Join(f.dir, n.Name)); err != nil {
		return err
	}
	step("removed %s", filepath.Join(f.dir, n.Name))
	f.plan.Nodes = slices.Delete(f.plan.Nodes, f.index(name), f.index(name)+1)
	if err := f.save(); err != nil {
		return err
	}
	step("%s is out of %s", name, filepath.Join(f.dir, planFile))
	return nil
}

// removeMember removes a member, unless that must not be.
func (c *connection) removeMember(ctx context.Context, members []member, m member, yes bool, step Step) error {
	others := those(members, func(o member) bool { return o.ID != m.ID })
	if m.votes() {
		if err := mayShrink(others, m); err != nil {
			return err
		}
	}
	if m.leads() {
		if !yes {
			return fmt.Errorf("%s leads the cluster: writes wait while another member takes its place; write --yes to have that, or remove another one", m.node)
		}
		if err := c.handOver(ctx, m, those(others, func(o member) bool { return o.votes() && o.well() })); err != nil {
			return err
		}
		step("%s has handed the leadership over", m.node)
	}
	err := change(ctx, rpctypes.ErrMemberNotFound, func(ctx context.Context) error {
		_, err := c.client.MemberRemove(ctx, m.ID)
		return err
	})
	if err != nil {
		return fmt.Errorf("%s cannot be removed: %w", m.node, plain(err))
	}
	return nil
}

// mayShrink returns why a voting member must not be removed from beside others.
func mayShrink(others []member, m member) error {
	voters := those(others, member.votes)
	well := those(voters, member.well)
	need := quorum(len(voters))
	switch {
	case len(voters) == 0:
		return fmt.Errorf("%s is the only member that votes: without it there is no cluster", m.node)
	case len(well) < need:
		sick := those(voters, func(o member) bool { return !o.well() })
		return fmt.Errorf("without %s the cluster would be lost: %s would have to agree of %s, and %d %s well; repair or remove %s first",
			m.node, counted(need, "member"), counted(len(voters), "voting member"), len(well), are(len(well)), names(sick))
	}
	return nil
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// handOver has another member lead.
func (c *connection) handOver(ctx context.Context, leader member, to []member) error {
	err := errors.New("no other member is well")
	for _, next := range to {
		var own *connection
		// Only the leader itself can.
		if own, err = c.f.connectTo(leader.url); err != nil {
			return err
		}
		ask, cancel := context.WithTimeout(ctx, callPatience)
		_, err = own.client.MoveLeader(ask, next.ID)
		cancel()
		own.close()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s cannot hand the leadership over: %w", leader.node, plain(err))
}
