// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/tenurelock/tenure"
)

// Options are for one worker of a group; but for the partitions, which are the
// same for all. Nil means the defaults.
type Options struct {
	// Partitions is how many partitions the group has, with the names "0", "1"
	// and so on; or Names are their names. One of the two must be given. They
	// are only used the first time: once a worker has run, those in the store
	// count for all. Change them with [Group.Resize].
	Partitions int
	Names      []string

	// Weight is the share of the partitions that this worker is to have, beside
	// the others' weights. If zero, it is 1.
	Weight float64

	// Zone is where the worker runs, such as a rack or an availability zone.
	// Partitions that are better worked on there come to it: see Zones.
	Zone string

	// Zones are those in which partitions are better worked on, by their names:
	// where their data are, say. They are as Partitions: what the store has counts,
	// and [Group.SetZones] changes it. A partition goes to a worker of its zone as
	// long as that has no more than five fourths of its share; then anywhere, as do
	// those without a zone, or with one in which no worker is.
	Zones map[string]string

	// Max is the most partitions that this worker takes, whatever happens to the
	// others. What no worker has room for is unassigned, which an event, [Stats] and
	// [Status] show. If zero, there is no such limit.
	Max int

	// Address is shown with the worker, so that others can reach it. It has at
	// most 512 bytes.
	Address string

	// Budget is how many partitions this worker asks others for at a time. More
	// is quicker, and has more partitions change hands at once. It is at most
	// 48, because a session has room for 64 requests. If zero, it is 16.
	Budget int

	// Claims is how many free partitions this worker claims at a time: fewer, while
	// that takes longer than a heartbeat period. If zero, it is 16.
	Claims int

	// Audit is how many partitions of other planned owners this worker polls in four
	// refresh periods, one after the other. It claims one that has had no owner for two
	// leases, and hands it to its planned owner later. If zero, it is 2; -1 saves a quarter
	// of a worker's reads, but then nobody picks up a partition whose planned owner never
	// claims it.
	Audit int

	// Prepare is called before another worker is asked for a partition: to load
	// what the work needs, say. The other worker continues until Prepare returns.
	// Ctx ends when the partition will not come after all. An error puts the move
	// off. Prepare is not called for a partition without an owner. A worker that
	// prepares also asks a leaving worker, which otherwise hands over by itself.
	Prepare func(ctx context.Context, id string) error

	// LeaveTimeout is how long a leaving worker takes to hand its partitions over.
	// What is left then is freed at once, and so is what the plan gives to nobody,
	// because all others leave as well, or are full. If zero, it is eight leases;
	// negative means that it does not wait.
	LeaveTimeout time.Duration

	// Plans, if not nil, lets workers of the same process share their plans. It
	// matters where many run in one, in a test or a simulation.
	Plans *Plans

	// OnEvent is called with everything that happens, one event at a time. It
	// may take its time: nothing waits for it but the end of Run, for a while, and
	// events are dropped, and counted, when it falls far behind.
	OnEvent func(Event)
}

const (
	// MaxPartitions is the most partitions that a group can have.
	MaxPartitions = 1_000_000
	// MaxMembers is the most workers that a group can have: their membership is
	// one record. Further ones wait until there is room.
	MaxMembers = 1000

	defaultBudget = 16
	maxBudget     = 48
	defaultClaims = 16
	maxClaims     = 1024
	defaultAudit  = 2
	maxAudit      = 1000
	maxWeight     = 1e6
	minWeight     = 1e-3
	maxTextLen    = 512
	maxZoneLen    = 64

	// defaultLeave is in leases.
	defaultLeave = 8
)

func (o *Options) withDefaults(client *tenure.Client) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	c.Names = append([]string(nil), c.Names...)
	if c.Weight == 0 {
		c.Weight = 1
	}
	if c.Budget == 0 {
		c.Budget = defaultBudget
	}
	if c.Claims == 0 {
		c.Claims = defaultClaims
	}
	if c.Audit == 0 {
		c.Audit = defaultAudit
	}
	if c.LeaveTimeout == 0 && client != nil {
		c.LeaveTimeout = defaultLeave * client.Options().LeaseDuration
	}
	return c, c.validate()
}

func (o *Options) validate() error {
	var errs []error
	add := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	switch {
	case o.Partitions == 0 && len(o.Names) == 0:
		add("neither Partitions nor Names are given: say how many partitions there are, or which")
	case o.Partitions != 0 && len(o.Names) > 0:
		add("both Partitions (%d) and Names (%d) are given: give one", o.Partitions, len(o.Names))
	default:
		_, err := newSpec(o.Partitions, o.Names, o.Zones)
		errs = append(errs, err)
	}
	if !(o.Weight >= minWeight && o.Weight <= maxWeight) || math.IsNaN(o.Weight) {
		add("weight %v must be from %v to %v", o.Weight, minWeight, maxWeight)
	}
	if o.Max < 0 {
		add("max %d must not be negative", o.Max)
	}
	if o.Budget < 1 || o.Budget > maxBudget {
		add("budget %d must be from 1 to %d", o.Budget, maxBudget)
	}
	if o.Claims < 1 || o.Claims > maxClaims {
		add("claims %d must be from 1 to %d", o.Claims, maxClaims)
	}
	if o.Audit > maxAudit {
		add("audit %d must be at most %d", o.Audit, maxAudit)
	}
	if o.Zone != "" {
		errs = append(errs, checkText("zone", o.Zone, maxZoneLen))
	}
	if o.Address != "" {
		errs = append(errs, checkText("address", o.Address, maxTextLen))
	}
	return errors.Join(errs...)
}
