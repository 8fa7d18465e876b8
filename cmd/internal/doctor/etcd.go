// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/etcdstore"
)

// Etcd is the cluster of a store in etcd.
type Etcd struct {
	Options etcdstore.Options
	// Config returns what a client is made of.
	Config func() (clientv3.Config, error)
}

// etcdPatience bounds the questions about a cluster, all of them together.
const etcdPatience = 15 * time.Second

// eventualReads says that looks are answered by the member that is asked.
func (e Etcd) eventualReads() bool { return true }

// examine looks at the cluster.
func (e Etcd) examine(ctx context.Context, p *Patient) {
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	config, err := e.Config()
	if err != nil {
		return // the store says so, too
	}
	config.Logger = zap.NewNop()
	client, err := clientv3.New(config)
	if err != nil {
		return // likewise
	}
	defer client.Close() //nolint:errcheck // it has nothing to lose
	p.Tell(e.encryption(config))
	reached := false
	for _, endpoint := range config.Endpoints {
		asked, stop := context.WithTimeout(ctx, etcdPatience/5)
		status, err := client.Status(asked, endpoint)
		stop()
		if err != nil {
			p.Tell(Finding{"member", Warn, fmt.Sprintf("%s does not answer: %v", endpoint, err), "locks work while most members do; mend it, or leave it out of the URL"})
			continue
		}
		reached = true
		p.Tell(member(endpoint, status))
		p.Tell(quota(endpoint, status))
	}
	if !reached {
		return
	}
	e.cluster(ctx, p, client)
	e.rights(ctx, p, client)
}

// encryption tells whether a password can be read by others on its way.
func (e Etcd) encryption(config clientv3.Config) Finding {
	f := Finding{"encryption", OK, "the connection is encrypted", ""}
	if config.TLS != nil {
		return f
	}
	f.Finding = "the connection is not encrypted"
	for _, endpoint := range config.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			continue
		}
		if !near(u.Hostname()) {
			f.Level, f.Advice = Warn, "others on the way can read and change it: write etcds:, or ca= in the URL"
		}
	}
	return f
}

func member(endpoint string, s *clientv3.StatusResponse) Finding {
	f := Finding{"member", OK, fmt.Sprintf("%s answers, version %s", endpoint, s.Version), ""}
	if s.IsLearner {
		f.Level, f.Finding, f.Advice = Warn, endpoint+" is a learner, which answers no strong read", "leave it out of the URL until it votes"
	}
	return f
}

// quotaLevel is the part of the quota above which it is told.
const quotaLevel = 0.8

func quota(endpoint string, s *clientv3.StatusResponse) Finding {
	const mega = 1 << 20
	f := Finding{"quota", OK, fmt.Sprintf("%s has %d MB, of which %d MB are in use", endpoint, s.DbSize/mega, s.DbSizeInUse/mega), ""}
	if s.DbSizeQuota <= 0 {
		return f
	}
	f.Finding += fmt.Sprintf("; the quota is %d MB", s.DbSizeQuota/mega)
	if float64(s.DbSize) > quotaLevel*float64(s.DbSizeQuota) {
		f.Level, f.Advice = Warn, "when it is full, all writes are refused and every lease ends: compact (--auto-compaction-retention=1h), defragment (etcdctl defrag), or raise --quota-backend-bytes"
	}
	return f
}

// mostRevisions is how many revisions without a compaction are told.
const mostRevisions = 100_000

// cluster looks at what all members have in common.
func (e Etcd) cluster(ctx context.Context, p *Patient, client *clientv3.Client) {
	if all, err := client.MemberList(ctx); err == nil {
		voting := 0
		for _, m := range all.Members {
			if !m.IsLearner {
				voting++
			}
		}
		p.Tell(members(voting, "voting member"))
	}
	if alarms, err := client.AlarmList(ctx); err == nil {
		f := Finding{"alarms", OK, "none", ""}
		for _, a := range alarms.Alarms {
			f.Level = Bad
			switch a.Alarm {
			case etcdserverpb.AlarmType_NOSPACE:
				f.Finding, f.Advice = "NOSPACE: the quota is full, and no lock can be taken or renewed", "compact and defragment, then run etcdctl alarm disarm"
			case etcdserverpb.AlarmType_CORRUPT:
				f.Finding, f.Advice = "CORRUPT: a member's data are not those of the others", "see the etcd documentation on data corruption, before locks are trusted again"
			default:
				f.Finding, f.Advice = a.Alarm.String(), "see etcdctl alarm list"
			}
		}
		p.Tell(f)
	}
	key := e.key()
	now, err := client.Get(ctx, key)
	if err != nil || now.Header.Revision <= mostRevisions {
		return
	}
	if _, err := client.Get(ctx, key, clientv3.WithRev(now.Header.Revision-mostRevisions)); err == nil {
		p.Tell(Finding{"compaction", Warn, fmt.Sprintf("none in the last %d revisions", mostRevisions), "each heartbeat adds to the database until then: start etcd with --auto-compaction-retention=1h"})
	} else if errors.Is(err, rpctypes.ErrCompacted) {
		p.Tell(Finding{"compaction", OK, fmt.Sprintf("old revisions are gone; the newest is %d", now.Header.Revision), ""})
	}
}

// key is one of the store's, which has no record.
func (e Etcd) key() string {
	prefix := e.Options.Prefix
	if prefix == "" {
		prefix = etcdstore.DefaultPrefix
	}
	return prefix + "r/" + driver.OwnPrefix + "doctor/" + rand.Text()
}

// rights tries a write whose condition cannot hold: who may not write learns so before
// etcd looks at the condition.
func (e Etcd) rights(ctx context.Context, p *Patient, client *clientv3.Client) {
	key := e.key()
	_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", -1)).
		Then(clientv3.OpPut(key, "doctor")).Else(clientv3.OpGet(key)).Commit()
	prefix := strings.TrimSuffix(key, key[strings.Index(key, "r/"+driver.OwnPrefix):])
	switch {
	case err == nil:
		p.Tell(Finding{"rights", OK, fmt.Sprintf("keys below %q can be read and written", prefix), ""})
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		p.Tell(Finding{"rights", Bad, fmt.Sprintf("keys below %q must not be written", prefix), fmt.Sprintf("etcdctl role grant-permission ROLE readwrite --prefix=true %s", prefix)})
	}
}
