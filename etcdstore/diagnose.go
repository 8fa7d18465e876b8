// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tenurelock/tenure/driver"
)

const (
	// diagnosisPatience bounds the questions about a cluster, and memberPatience those to a member.
	diagnosisPatience = 15 * time.Second
	memberPatience    = 3 * time.Second
	// quotaLevel is the part of the quota above which a member is warned of.
	quotaLevel = 0.8
	// mostRevisions is how many revisions without a compaction are warned of.
	mostRevisions = 100_000
)

// Diagnose examines the members that the client's config names, the cluster, and the rights of
// the user. It implements [driver.Diagnoser].
func (s *Store) Diagnose(ctx context.Context, _ driver.Timing) []driver.Finding {
	ctx, cancel := context.WithTimeout(ctx, diagnosisPatience)
	defer cancel()
	endpoints := s.client.Endpoints()
	all := []driver.Finding{encryption(endpoints)}
	reached := false
	for _, endpoint := range endpoints {
		asked, stop := context.WithTimeout(ctx, memberPatience)
		status, err := s.client.Status(asked, endpoint)
		stop()
		if err != nil {
			all = append(all, driver.Warn("member", "%s does not answer: %v", endpoint, err).
				Advise("locks work while a majority of the members does; fix this member, or remove it from the URL"))
			continue
		}
		reached = true
		all = append(all, memberFinding(endpoint, status), quota(endpoint, status))
	}
	if !reached {
		return all
	}
	return append(append(all, s.cluster(ctx)...), s.rights(ctx)...)
}

// encryption checks the endpoints, which are https: for a client with TLS.
func encryption(endpoints []string) driver.Finding {
	encrypted := false
	var hosts []string
	for _, endpoint := range endpoints {
		if u, err := url.Parse(endpoint); err == nil {
			encrypted = encrypted || u.Scheme == "https"
			hosts = append(hosts, u.Hostname())
		}
	}
	return driver.Encrypted(encrypted, "write etcds:, or ca= in the URL", hosts...)
}

func memberFinding(endpoint string, s *clientv3.StatusResponse) driver.Finding {
	if s.IsLearner {
		return driver.Warn("member", "%s is a learner, which answers no strong read", endpoint).
			Advise("leave it out of the URL until it votes")
	}
	return driver.OK("member", "%s answers, version %s", endpoint, s.Version)
}

func quota(endpoint string, s *clientv3.StatusResponse) driver.Finding {
	const mega = 1 << 20
	f := driver.OK("quota", "%s has %d MB (%d MB in use)", endpoint, s.DbSize/mega, s.DbSizeInUse/mega)
	if s.DbSizeQuota <= 0 {
		return f
	}
	f = driver.OK("quota", "%s; the quota is %d MB", f.Finding, s.DbSizeQuota/mega)
	if float64(s.DbSize) > quotaLevel*float64(s.DbSizeQuota) {
		f.Level, f.Advice = driver.LevelWarn, "when it is full, all writes are refused and every lease ends: "+
			"compact (--auto-compaction-retention=1h), defragment (etcdctl defrag), or raise --quota-backend-bytes"
	}
	return f
}

// cluster examines what all members have in common.
func (s *Store) cluster(ctx context.Context) (all []driver.Finding) {
	if list, err := s.client.MemberList(ctx); err == nil {
		voting := 0
		for _, m := range list.Members {
			if !m.IsLearner {
				voting++
			}
		}
		all = append(all, driver.Members(voting, "voting member"))
	}
	if list, err := s.client.AlarmList(ctx); err == nil {
		f := driver.OK("alarms", "none")
		for _, a := range list.Alarms {
			switch a.Alarm {
			case etcdserverpb.AlarmType_NOSPACE:
				f = driver.Bad("alarms", "NOSPACE: the quota is full, and no lock can be taken or renewed").
					Advise("compact and defragment, then run etcdctl alarm disarm")
			case etcdserverpb.AlarmType_CORRUPT:
				f = driver.Bad("alarms", "CORRUPT: a member's data differ from those of the others").
					Advise("see the etcd documentation on data corruption, before locks are trusted again")
			default:
				f = driver.Bad("alarms", "%v", a.Alarm).Advise("see etcdctl alarm list")
			}
		}
		all = append(all, f)
	}
	key := s.absent()
	now, err := s.client.Get(ctx, key)
	if err != nil || now.Header.Revision <= mostRevisions {
		return all
	}
	_, err = s.client.Get(ctx, key, clientv3.WithRev(now.Header.Revision-mostRevisions))
	switch {
	case err == nil:
		all = append(all, driver.Warn("compaction", "none in the last %d revisions", mostRevisions).
			Advise("each heartbeat adds to the database until then: start etcd with --auto-compaction-retention=1h"))
	case errors.Is(err, rpctypes.ErrCompacted):
		all = append(all, driver.OK("compaction", "old revisions are gone; the newest is %d", now.Header.Revision))
	}
	return all
}

// absent is a key of the store that has no record.
func (s *Store) absent() string { return s.prefix + "r/" + driver.OwnPrefix + "doctor/" + rand.Text() }

// rights tries a write whose condition cannot hold: etcd checks the permission before
// the condition.
func (s *Store) rights(ctx context.Context) []driver.Finding {
	key := s.absent()
	_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", -1)).
		Then(clientv3.OpPut(key, "doctor")).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err == nil:
		return []driver.Finding{driver.OK("rights", "keys below %q can be read and written", s.prefix)}
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return []driver.Finding{driver.Bad("rights", "keys below %q must not be written", s.prefix).
			Advise("etcdctl role grant-permission ROLE readwrite --prefix=true %s", s.prefix)}
	}
	return nil
}
