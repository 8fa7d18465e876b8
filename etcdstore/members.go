// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package etcdstore

import (
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A member whose process is stopped, or which hears nothing from the others, keeps its
// connection. gRPC takes keepAliveTime and keepAliveTimeout to notice the first of these, and
// never notices the second. Meanwhile round_robin gives such a member its share of the
// requests, which all time out. At worst it gets every heartbeat of one lock, when other
// requests fall in step with them, and the lease ends. So the requests of a client that [Open]
// makes go in turn to the members that answer. After a timeout a member gets no requests for
// avoidFor, unless all members timed out.

// avoidFor is how long a member is avoided after a request to it ran out of time. By then
// gRPC has tested its connection, and closed it if nothing came back.
const avoidFor = keepAliveTime + keepAliveTimeout

// policyName is the name of the policy in gRPC.
const policyName = "tenure_answering_members"

func init() {
	balancer.Register(builder{base.NewBalancerBuilder(policyName, policy{}, base.Config{})})
}

// answeringMembers has a client's requests go to the members that answer. What the client
// says of itself, round_robin, is not followed.
func answeringMembers() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + policyName + `": {}}]}`),
	}
}

// builder passes the members to package base, since etcd's client uses another field for them.
type builder struct{ balancer.Builder }

func (b builder) Build(conn balancer.ClientConn, options balancer.BuildOptions) balancer.Balancer {
	return flat{b.Builder.Build(conn, options)}
}

type flat struct{ balancer.Balancer }

func (f flat) UpdateClientConnState(state balancer.ClientConnState) error {
	state.ResolverState.Addresses = nil
	for _, member := range state.ResolverState.Endpoints {
		state.ResolverState.Addresses = append(state.ResolverState.Addresses, member.Addresses...)
	}
	return f.Balancer.UpdateClientConnState(state)
}

// policy makes pickers. The connected members change seldom; after a change all of them
// count as answering.
type policy struct{}

// Build implements [base.PickerBuilder].
func (policy) Build(info base.PickerBuildInfo) balancer.Picker {
	if len(info.ReadySCs) == 0 {
		return base.NewErrPicker(balancer.ErrNoSubConnAvailable)
	}
	p := &picker{begun: time.Now()}
	for conn := range info.ReadySCs {
		p.members = append(p.members, &member{conn: conn})
	}
	return p
}

// picker gives each request to a member.
type picker struct {
	begun   time.Time
	members []*member
	next    atomic.Uint64
}

// member is a connected member.
type member struct {
	conn    balancer.SubConn
	avoided atomic.Int64 // until then, as the time since the picker began
}

// Pick implements [balancer.Picker].
func (p *picker) Pick(balancer.PickInfo) (balancer.PickResult, error) {
	now := int64(time.Since(p.begun))
	first := p.next.Add(1)
	picked := p.members[first%uint64(len(p.members))]
	for i := range uint64(len(p.members)) {
		if m := p.members[(first+i)%uint64(len(p.members))]; m.avoided.Load() <= now {
			picked = m
			break
		}
	}
	return balancer.PickResult{SubConn: picked.conn, Done: func(done balancer.DoneInfo) {
		if done.Err == nil {
			picked.avoided.Store(0)
		} else if status.Code(done.Err) == codes.DeadlineExceeded {
			picked.avoided.Store(int64(time.Since(p.begun) + avoidFor))
		}
	}}, nil
}
