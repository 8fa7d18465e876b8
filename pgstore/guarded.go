// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package pgstore

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/tenurelock/tenure/driver"
)

// Guarded are the options of a store on a primary that has asynchronous standbys. A failover loses the
// last writes there. So the store grants no lock after a start or a promotion of the server until all
// leases have ended that may have been lost with them: see [driver.Guarded]. Holders whose records were not lost
// go on. All programs that use a table have the same options: the table remembers with which it was created.
//
// For that, something must bound for how long a primary that was cut off goes on answering writes after a
// standby was promoted. Set Watchdog or Standbys.
type Guarded struct {
	// Watchdog is a statement of the operator: Patroni promotes the standbys, with watchdog mode required and the
	// default safety_margin, so that an old primary is dead before its leader key lapses, or 5 s later. The store
	// cannot check that. Without a required watchdog a Patroni that was killed or hangs leaves its server writing
	// for ever.
	Watchdog bool

	// Standbys is how many standbys the primary has at most, and Need how many of them must be connected: all if zero. A
	// write, unless it is a release, is refused if fewer have answered within SenderTimeout, or if more are connected. So a
	// primary that was cut off from the standby that is promoted stops. The role must be a member of pg_read_all_stats to
	// count them. pg_receivewal, base backups and logical replication do not count. A standby of a standby must not be
	// promoted.
	//
	// After a failover the new primary has one standby less: with all of them needed, it refuses each write until
	// the old primary has come back. Set Need to half of the Standbys, rounded down, only if a majority of the servers
	// decides about a failover, by what runs beside each server and nowhere else, and if the other standbys leave the
	// old primary within SenderTimeout after a promotion: then fewer can stay with it, cut off or not.
	Standbys, Need int

	// SenderTimeout is at least the setting wal_sender_timeout of the server, which [Open] compares: 10 s if zero, and
	// whole seconds. It has no meaning with Watchdog. The longer it is, the longer a failover stops all grants.
	SenderTimeout time.Duration

	// Lease is the longest lease of a lock, in whole milliseconds, and at least a second: 15 s if zero. After a start or
	// a promotion no lock is granted for this time and the one above, and a dead holder's lock is not taken over sooner.
	Lease time.Duration
}

// The defaults of [Guarded].
const (
	DefaultLease         = 15 * time.Second
	DefaultSenderTimeout = 10 * time.Second
)

const (
	// safetyMargin is Patroni's, for which a primary may outlive its leader key.
	safetyMargin = 5 * time.Second
	// senderSlack is how late a walsender may notice its timeout.
	senderSlack = 2 * time.Second
	// drift is the bound on the rate error of a clock, with some room: the default of clients is 0.09.
	drift       = 0.1
	maxStandbys = 100
)

// guard is what a store makes of [Guarded].
type guard struct {
	Guarded
	waits    time.Duration
	settings string // as the table keeps and compares them
}

// guard returns nil if nothing is guarded.
func (g *Guarded) guard() (*guard, error) {
	if g == nil {
		return nil, nil //nolint:nilnil // nothing is guarded
	}
	set := guard{Guarded: *g}
	if set.Lease == 0 {
		set.Lease = DefaultLease
	}
	switch {
	case set.Lease < time.Second || set.Lease%time.Millisecond != 0: // lives that open within a second would share a base
		return nil, fmt.Errorf("pgstore: lease %v: it is whole milliseconds, and at least a second", set.Lease)
	case set.Watchdog == (set.Standbys != 0):
		return nil, errors.New("pgstore: a guarded store needs Watchdog or Standbys, and not both: something must stop " +
			"a primary that was cut off")
	case set.Watchdog && (set.SenderTimeout != 0 || set.Need != 0):
		return nil, errors.New("pgstore: Need and SenderTimeout are about Standbys: leave them out with Watchdog")
	case set.Watchdog:
		set.waits = set.Lease + extended(safetyMargin)
		set.settings = "patroni-watchdog lease=" + set.Lease.String()
		return &set, nil
	}
	set.SenderTimeout = cmp.Or(set.SenderTimeout, DefaultSenderTimeout)
	set.Need = cmp.Or(set.Need, set.Standbys)
	switch {
	case set.Standbys < 1 || set.Standbys > maxStandbys:
		return nil, fmt.Errorf("pgstore: %d standbys: 1 to %d are possible", set.Standbys, maxStandbys)
	case set.Need < max(1, set.Standbys/2) || set.Need > set.Standbys:
		return nil, fmt.Errorf("pgstore: need %d of %d standbys: need is at most all of them, and at least half of them, rounded "+
			"down, and one: fewer could stay with a primary that was cut off", set.Need, set.Standbys)
	case set.SenderTimeout < time.Second || set.SenderTimeout%time.Second != 0:
		return nil, fmt.Errorf("pgstore: sender timeout %v: it is whole seconds, at least one", set.SenderTimeout)
	}
	bound := set.SenderTimeout + senderSlack
	if set.Need < set.Standbys { // a standby that is not promoted may leave as late as that, and only then its silence begins
		bound += set.SenderTimeout
	}
	set.waits = set.Lease + extended(bound)
	set.settings = fmt.Sprintf("standbys=%d of %d wal_sender_timeout=%v lease=%v",
		set.Need, set.Standbys, set.SenderTimeout, set.Lease)
	return &set, nil
}

// extended is d by a clock that is slow.
func extended(d time.Duration) time.Duration { return time.Duration((1 + drift) * float64(d)) }

// needs says how many standbys writes need.
func (g *guard) needs() string {
	if g.Need == g.Standbys {
		return "exactly " + strconv.Itoa(g.Need)
	}
	return fmt.Sprintf("%d to %d", g.Need, g.Standbys)
}

// Waits returns how long a contender waits: see [driver.Guarded]. It is the longest lease and 5.5 s with
// Guarded.Watchdog, or 1.1 times the sender timeout and 2 s with Guarded.Standbys: 20.5 s and 28.2 s by default. If not all
// standbys are needed, the sender timeout counts twice: 39.2 s. Without Options.Guarded it is 0.
func (s *Store) Waits() time.Duration {
	if s.guard == nil {
		return 0
	}
	return s.guard.waits
}

// check returns an error if the store cannot have a record. For a released one nobody waits: it may be as shown
// in a closed life, with [Store.Waits] as its lease.
func (s *Store) check(next driver.Record, err error) error {
	if err == nil && s.guard != nil && next.Lease > s.guard.Lease && next.State != driver.Released {
		err = driver.Unsupported(fmt.Errorf("postgres: write of %q with a lease of %v: the longest of table %s is %v: "+
			"create another table for a longer one, by Guarded.Lease or lease= in the URL",
			next.Key, next.Lease, s.Table(), s.guard.Lease))
	}
	return err
}
