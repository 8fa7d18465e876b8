// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// pause is how long a node that is awaited is left alone.
const pause = 500 * time.Millisecond

// catchUp is by how many entries of the log a learner may be behind the leader. What etcd
// asks for it checks itself.
const catchUp = 100

// Step says what has been done, in a sentence for people. It is called before the next step
// is begun.
type Step func(format string, args ...any)

// Add makes a node a member: a learner first, which is promoted when it has caught up. What
// another Add of the same node has done already is not done again. It returns when the node
// votes, or when ctx ends.
func (f *Folder) Add(ctx context.Context, n Node, now time.Time, step Step) error {
	if err := f.mayAdd(n); err != nil {
		return err
	}
	// Before anything is changed: without the authorities there is no certificate for it.
	a, err := readAuthorities(f.dir)
	if err != nil {
		return err
	}
	c, members, err := f.meet(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	peerURL := f.plan.Settings.peerURL(n)
	is := func(m member) bool { return slices.Contains(m.PeerURLs, peerURL) }
	if err := mayGrow(those(members, func(m member) bool { return !is(m) }), n); err != nil {
		return err
	}
	voters := len(those(members, member.votes))
	step("the cluster has %s, and all of them answer", counted(voters, "voting member"))
	if !slices.ContainsFunc(members, is) {
		err := change(ctx, rpctypes.ErrPeerURLExist, func(ctx context.Context) error {
			_, err := c.client.MemberAddAsLearner(ctx, []string{peerURL})
			return err
		})
		if err != nil {
			return fmt.Errorf("%s cannot be made a learner: %w", n.Name, plain(err))
		}
		step("%s is a learner of the cluster: it is sent what the others write, and has no vote", n.Name)
		if members, err = c.look(ctx, false); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(members, is)
	if i < 0 {
		return fmt.Errorf("%s is no member any more: somebody has removed it; see tenured cluster check", n.Name)
	}
	id := members[i].ID
	if err := f.furnish(a, n, members, now, step); err != nil {
		return err
	}
	if members[i].IsLearner {
		if err := c.promote(ctx, n, id, step); err != nil {
			return err
		}
		step("%s votes", n.Name)
	}
	f.plan.Nodes[f.index(n.Name)].Joining = false
	if err := f.save(); err != nil {
		return err
	}
	step("%s is noted in %s", n.Name, filepath.Join(f.dir, planFile))
	return nil
}

// mayAdd returns why the folder cannot take a node.
func (f *Folder) mayAdd(n Node) error {
	i := f.index(n.Name)
	if i < 0 {
		return n.besides(f.plan.Nodes)
	}
	if known := f.plan.Nodes[i]; known.Address != n.Address {
		return fmt.Errorf("%s is a node already, at %s: remove it first, with tenured cluster remove %[1]s, or choose another name", n.Name, known.Address)
	}
	return nil
}

// mayGrow returns why no node may be added to members now.
func mayGrow(members []member, n Node) error {
	for _, m := range members {
		switch {
		case m.Name == n.Name || m.node == n.Name:
			return fmt.Errorf("a member at %s is called %s already: remove it first, or choose another name", m.url, n.Name)
		case m.IsLearner:
			return fmt.Errorf("%s is being added, and one at a time is: end that with tenured cluster add %[1]s=ADDRESS, or take it back with tenured cluster remove %[1]s", m.node)
		case m.status == nil:
			return fmt.Errorf("%s does not answer (%w): repair it, or remove it before another one is added, since with it the cluster would need more members than are well", m.node, m.err)
		case !m.well():
			return fmt.Errorf("%s is not well (%v): see tenured cluster check", m.node, m.status.Errors)
		}
	}
	return nil
}

// furnish writes the folder of a node that joins, if it is not there, and notes it.
func (f *Folder) furnish(a authorities, n Node, members []member, now time.Time, step Step) error {
	dir := filepath.Join(f.dir, n.Name)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		var all []Node
		for _, m := range members {
			if slices.Contains(m.PeerURLs, f.plan.Settings.peerURL(n)) {
				continue
			}
			// Etcd compares the names, and where members say that they are.
			known, ok := f.node(m.node)
			if !ok {
				return fmt.Errorf("member %s is not in this folder: add nodes with the folder in which it is, or remove it", m.node)
			}
			all = append(all, known)
		}
		files, err := f.joining(a, n, append(all, n), now)
		if err != nil {
			return err
		}
		if err := writeFolder(dir, files); err != nil {
			return err
		}
		step("wrote %s", dir)
	} else if err != nil {
		return err
	}
	if f.index(n.Name) < 0 {
		n.Joining = true
		f.plan.Nodes = append(f.plan.Nodes, n)
		if err := f.save(); err != nil {
			return err
		}
		step("%s is noted as one that joins", n.Name)
	}
	return nil
}

// joining makes the files of a node that joins members, of which it is one.
func (f *Folder) joining(a authorities, n Node, members []Node, now time.Time) (map[string]file, error) {
	var cas [2][]byte
	for i, name := range []string{clientCA, peerCA} {
		text, err := os.ReadFile(filepath.Join(f.dir, caDir, name+".crt"))
		if err != nil {
			return nil, err
		}
		cas[i] = text
	}
	return f.nodeFiles(a, n, cas[0], cas[1], members, "existing", now)
}

// promote waits until a learner has caught up, and gives it a vote.
func (c *connection) promote(ctx context.Context, n Node, id uint64, step Step) error {
	dir := filepath.Join(c.f.dir, n.Name)
	step("start it now: take %s to %s, as %s says", dir, n.Name, filepath.Join(dir, unitFile))
	answered := false
	for {
		status, err := c.status(ctx, c.f.plan.Settings.clientURL(n))
		if err == nil && !answered {
			answered = true
			step("%s answers, and catches up", n.Name)
		}
		if err == nil {
			err = c.tryPromote(ctx, status.RaftAppliedIndex, id)
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s has no vote yet (%w): start it, and repeat this command, which goes on from here", n.Name, err)
		case <-time.After(pause):
		}
	}
}

// tryPromote gives a learner that has applied so much a vote, unless that is too little. It
// asks the leader itself: with users, another member passes the request on without saying
// whose it is, and it is refused there.
func (c *connection) tryPromote(ctx context.Context, applied, id uint64) error {
	members, err := c.look(ctx, false)
	if err != nil {
		return err
	}
	leader := those(members, member.leads)
	switch {
	case len(leader) != 1:
		return errors.New("there is no leader at the moment")
	case applied+catchUp < leader[0].status.RaftIndex:
		return fmt.Errorf("it is %d entries behind the leader", leader[0].status.RaftIndex-applied)
	}
	own, err := c.f.connectTo(leader[0].url)
	if err != nil {
		return err
	}
	defer own.close()
	ask, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	_, err = own.client.MemberPromote(ask, id)
	if errors.Is(err, rpctypes.ErrMemberNotLearner) {
		return nil // an answer was lost
	}
	return plain(err)
}

// counted returns a number of things.
func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
