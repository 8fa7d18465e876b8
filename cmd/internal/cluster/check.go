// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/cmd/internal/doctor"
)

const (
	// endsSoon is how long before its end a certificate is told.
	endsSoon = 60 * 24 * time.Hour
	// slowSync is above which the log's disk is too slow for etcd, by etcd's own guide.
	slowSync = 10 * time.Millisecond
	// watched is for how long writes are counted.
	watched = 4 * time.Second
	// perWrite is what etcd adds to the key and the value of a revision.
	perWrite = 150
	// defragPart is which part of the quota a file has, and of the file free pages have, that
	// is to be defragmented: a half.
	defragPart = 2
)

// examination is one of a cluster.
type examination struct {
	f       *Folder
	c       *connection
	options tenure.Options
	now     time.Time
	tell    func(doctor.Finding)
	members []member
	bad     bool
}

// Check examines the cluster: first what concerns it as a whole, and then as tenure doctor
// does, as a store. It returns whether something is bad, and why it could not go on.
func (f *Folder) Check(ctx context.Context, options tenure.Options, now time.Time, tell func(doctor.Finding)) (bad bool, err error) {
	x := &examination{f: f, options: options, now: now}
	x.tell = func(found doctor.Finding) {
		x.bad = x.bad || found.Level == doctor.Bad
		tell(found)
	}
	x.certificates()
	x.served(ctx)
	x.lease()
	if x.c, err = f.connect(); err != nil {
		return true, err
	}
	defer x.c.close()
	if x.members, err = x.c.look(ctx, true); err != nil {
		x.tell(doctor.Finding{Check: "cluster", Level: doctor.Bad, Finding: err.Error(), Advice: "see that etcd runs, and its log, on each node; if most of their data are lost, tenured cluster check --restore says what to do"})
		return true, errors.Join(doctor.ErrNoStore, err)
	}
	x.membership()
	x.versions()
	x.disks(ctx)
	x.history(ctx)
	x.pages()
	x.alarms(ctx)
	x.ok("restore", "a snapshot a day, of one member (ETCDCTL_ENDPOINTS=URL etcdctl snapshot save FILE); how to get back from one says tenured cluster check --restore", "")
	l, err := f.location()
	if err != nil {
		return true, err
	}
	bad, err = doctor.Examine(ctx, doctor.Patient{Engine: doctor.EngineOf(l), Open: l.Open, Options: options, Tell: x.tell})
	return bad || x.bad, err
}

func (x *examination) ok(check, finding, advice string) {
	x.tell(doctor.Finding{Check: check, Level: doctor.OK, Finding: finding, Advice: advice})
}

func (x *examination) warn(check, finding, advice string) {
	x.tell(doctor.Finding{Check: check, Level: doctor.Warn, Finding: finding, Advice: advice})
}

func (x *examination) wrong(check, finding, advice string) {
	x.tell(doctor.Finding{Check: check, Level: doctor.Bad, Finding: finding, Advice: advice})
}

// certificates looks at those of the folder.
func (x *examination) certificates() {
	all, err := x.f.Certificates()
	if err != nil {
		x.wrong("certificates", err.Error(), "get it back from a copy of the folder; tenured cluster certs --renew makes those of nodes and clients again")
		return
	}
	for _, c := range all {
		x.ends(c.File, c.End, "tenured cluster certs --renew makes it again; take the files to the node, or to the programs: etcd reads them at the next connection")
	}
	if first := all[0]; first.End.Sub(x.now) > endsSoon {
		x.ok("certificates", fmt.Sprintf("the first of %d to end is %s, on %s", len(all), first.File, day(first.End)), "")
	}
}

// ends tells of a certificate that has ended, or ends soon.
func (x *examination) ends(what string, end time.Time, advice string) {
	switch left := end.Sub(x.now); {
	case left <= 0:
		x.wrong("certificates", fmt.Sprintf("%s has ended on %s, and is refused", what, day(end)), advice)
	case left <= endsSoon:
		x.warn("certificates", fmt.Sprintf("%s ends on %s, in %s", what, day(end), counted(int(left/(24*time.Hour)), "day")), advice)
	}
}

// served looks at the certificates that nodes show: renewed ones may not have come there.
func (x *examination) served(ctx context.Context) {
	all, err := x.f.Certificates()
	if err != nil {
		return // it was told
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	dialer := tls.Dialer{NetDialer: new(net.Dialer), Config: &tls.Config{
		MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, // it is only looked at, also when it has ended
	}}
	for _, n := range x.f.plan.Nodes {
		c, err := dialer.DialContext(ctx, "tcp", at(n.Address, x.f.plan.Settings.ClientPort))
		if err != nil {
			continue // the members are asked by others
		}
		shown := c.(*tls.Conn).ConnectionState().PeerCertificates[0]
		_ = c.Close() // nothing was sent
		if !slices.ContainsFunc(all, func(c Certificate) bool { return c.Serial == shown.SerialNumber.String() }) {
			x.warn("certificates", fmt.Sprintf("node %s shows another one than the folder has: it ends on %s", n.Name, day(shown.NotAfter)), "take the new files to "+x.f.plan.Settings.ConfigDir+" there")
			x.ends("what node "+n.Name+" shows", shown.NotAfter, "take the new files there")
		}
	}
}

// lease compares a lease with how long etcd is without a leader.
func (x *examination) lease() {
	election := x.f.plan.Settings.election()
	need := 3*election + x.options.HeartbeatPeriod
	text := fmt.Sprintf("a fail-over of etcd takes one to three election timeouts of %v; a lease of %v", election, x.options.LeaseDuration)
	if x.options.LeaseDuration < need {
		x.warn("fail-over", text+" may not outlive it", fmt.Sprintf("use leases of %v or more", need))
		return
	}
	x.ok("fail-over", text+" outlives it", "")
}

// membership looks at who votes, who leads, and who is away.
func (x *examination) membership() {
	voters := those(x.members, member.votes)
	well := those(voters, member.well)
	leader := those(voters, member.leads)
	spare := len(well) - quorum(len(voters))
	text := fmt.Sprintf("%s, of which %d %s well", counted(len(voters), "voting member"), len(well), are(len(well)))
	if len(leader) == 1 {
		text += "; " + leader[0].node + " leads"
	}
	switch {
	case spare < 0:
		x.wrong("members", text+": no lock can be taken or renewed", "start the others; if their data are lost, see tenured cluster check --restore")
	case len(leader) != 1:
		x.wrong("members", text+"; none leads, or more than one says so", "look again in a few seconds: an election may be under way")
	case spare == 0 && len(voters) > 1:
		x.warn("members", text+": one more loss ends all leases", "repair or replace "+names(those(voters, func(m member) bool { return !m.well() })))
	default:
		x.ok("members", text+fmt.Sprintf("; %d may be lost", spare), "")
	}
	for _, m := range x.members {
		_, known := x.f.node(m.node)
		switch {
		case !known:
			x.warn("members", m.node+" is a member, and not in this folder", "it was added elsewhere; remove it, if nobody knows it: tenured cluster remove "+m.node)
		case m.IsLearner:
			x.warn("members", m.node+" is a learner, and has no vote", "repeat tenured cluster add "+m.node+"=ADDRESS, which goes on; or tenured cluster remove "+m.node)
		case m.status == nil:
			x.warn("members", fmt.Sprintf("%s does not answer: %v", m.node, m.err), "start it; if its disk is lost, remove it and add it again, in this order")
		}
		if m.status != nil && len(m.status.Errors) > 0 {
			x.warn("members", fmt.Sprintf("%s says: %s", m.node, strings.Join(m.status.Errors, ", ")), "")
		}
	}
	for _, n := range x.f.plan.Nodes {
		if !slices.ContainsFunc(x.members, func(m member) bool { return m.node == n.Name }) {
			x.warn("members", n.Name+" is in this folder, and no member", "tenured cluster remove "+n.Name+" takes it out of the folder")
		}
	}
}

// versions compares those of the members.
func (x *examination) versions() {
	byVersion := map[string][]member{}
	for _, m := range x.members {
		if m.status != nil {
			byVersion[m.status.Version] = append(byVersion[m.status.Version], m)
		}
	}
	var all []string
	minors := map[string]bool{}
	for version, members := range byVersion {
		all = append(all, version+" on "+names(members))
		minors[minor(version)] = true
	}
	slices.Sort(all)
	text := strings.Join(all, ", ")
	switch written := x.f.plan.Settings.Etcd; {
	case len(minors) > 1:
		x.warn("versions", text, "end the upgrade: one minor version at a time, one member at a time, followers first, with a check between")
	case len(minors) == 1 && !minors[written]:
		x.warn("versions", fmt.Sprintf("%s; the files were written for %s", text, written), "some settings have other names there, and are passed over: compare with what tenured cluster init --etcd writes for it")
	default:
		x.ok("versions", text, "")
	}
}

// minor returns 3.7 of 3.7.3.
func minor(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// history compares what is written with the quota.
func (x *examination) history(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	key := x.f.plan.Settings.Prefix + "/r/"
	first, err := x.c.client.Get(ctx, key, clientv3.WithPrefix(), clientv3.WithLimit(100))
	if err != nil {
		return // the store's examination says so, too
	}
	begun := time.Now()
	select {
	case <-ctx.Done():
		return
	case <-time.After(watched):
	}
	last, err := x.c.client.Get(ctx, key, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return
	}
	size := 1024
	for i, kv := range first.Kvs {
		if i == 0 {
			size = 0
		}
		size += len(kv.Key) + len(kv.Value) + perWrite
	}
	size /= max(1, len(first.Kvs))
	rate := float64(last.Header.Revision-first.Header.Revision) / time.Since(begun).Seconds()
	s := x.f.plan.Settings
	kept := rate * float64(size) * s.Retention.Duration().Seconds()
	text := fmt.Sprintf("%.1f writes a second of %d bytes: the revisions of %v take %d MB; the quota is %d MB", rate, size, s.Retention.Duration(), int64(kept)>>20, s.Quota>>20)
	if kept > float64(s.Quota)/2 {
		x.warn("history", text, "use sessions, which have one heartbeat for many locks; or a shorter auto-compaction-retention, such as 10m; or a larger quota-backend-bytes")
		return
	}
	x.ok("history", text, "")
}

// pages looks for files that are large and mostly free.
func (x *examination) pages() {
	leaderLast := slices.Clone(x.members)
	slices.SortStableFunc(leaderLast, func(a, b member) int {
		return cmp.Compare(map[bool]int{true: 1}[a.leads()], map[bool]int{true: 1}[b.leads()])
	})
	for _, m := range leaderLast {
		if m.status == nil || m.status.DbSize == 0 {
			continue
		}
		free := m.status.DbSize - m.status.DbSizeInUse
		text := fmt.Sprintf("%s has a file of %d MB, with %d %% of its pages free", m.node, m.status.DbSize>>20, 100*free/m.status.DbSize)
		quota := cmp.Or(m.status.DbSizeQuota, x.f.plan.Settings.Quota)
		if m.status.DbSize > quota/defragPart && free > m.status.DbSize/defragPart {
			x.warn("file", text, fmt.Sprintf("defragment it, one member at a time and the leader last: %s; it answers nobody meanwhile, for some 10 s a GB", defrag(m)))
			continue
		}
		x.ok("file", text, "")
	}
}

// alarms tells the cure of a full quota.
func (x *examination) alarms(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	list, err := x.c.client.AlarmList(ctx)
	if err != nil {
		return // there is no quorum, and that was told
	}
	full := slices.ContainsFunc(list.Alarms, func(a *etcdserverpb.AlarmMember) bool { return a.Alarm == etcdserverpb.AlarmType_NOSPACE })
	if !full {
		return
	}
	var revision int64
	for _, m := range x.members {
		if m.status != nil {
			revision = max(revision, m.status.Header.Revision)
		}
	}
	x.wrong("space", "the quota is full: all writes are refused, and leases end; nobody gets a lock that another one has", "free pages, in the order that follows; then find out what has filled it: see compaction and history")
	steps := x.f.cure(x.members, revision)
	for i, step := range steps {
		x.warn("cure", fmt.Sprintf("%d of %d: %s", i+1, len(steps), step), "")
	}
}
