// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/server/access"
)

// maxLocks bounds how many locks a census counts: some 100 MB of memory.
const maxLocks = 100_000

// census is all locks whose names begin with a prefix, in the order of their names.
type census struct {
	locks []lock
	cut   bool // there are more than maxLocks
}

// readCensus reads all locks with a prefix.
func (d *Dashboard) readCensus(ctx context.Context, prefix string) (census, error) {
	var c census
	for st, err := range d.client.Locks(ctx, prefix) {
		switch {
		case len(c.locks) == maxLocks:
			c.cut = true
		case err == nil:
			c.locks = append(c.locks, lockOf(st))
			continue
		case errors.Is(err, tenure.ErrUnreadable):
			c.locks = append(c.locks, unreadableLock(st.Name, err))
			continue
		default:
			return census{}, err
		}
		break
	}
	slices.SortFunc(c.locks, func(a, b lock) int { return strings.Compare(a.Name, b.Name) })
	return c, d.freed(ctx, c.locks)
}

// census returns all locks, or at least those with the prefix.
func (d *Dashboard) census(ctx context.Context, prefix string) answer[census] {
	all := d.censuses.ask(ctx, "")
	if prefix != "" && all.value.cut {
		return d.censuses.ask(ctx, prefix)
	}
	return all
}

// freed finds those locks that seem to have a dead holder, and are free, since their session
// was closed: that frees them without a change of their records.
func (d *Dashboard) freed(ctx context.Context, locks []lock) error {
	seen := map[string]tenure.SessionStatus{}
	for i := range locks {
		l := &locks[i]
		if l.state != expired || l.Session == "" {
			continue
		}
		s, known := seen[l.Session]
		if !known {
			var err error
			if s, err = d.client.SessionStatus(ctx, l.Session); err != nil && !errors.Is(err, tenure.ErrUnreadable) {
				return err
			}
			seen[l.Session] = s
		}
		if s.State != tenure.StateAlive {
			l.state, l.Until, l.End = free, s.Until, s.End
		}
	}
	return nil
}

// visible are those of the locks that a visitor may see, and whose names begin with the
// prefix.
func visible(locks []lock, v visitor, prefix string) []*lock {
	from, _ := slices.BinarySearchFunc(locks, prefix, func(l lock, name string) int { return strings.Compare(l.Name, name) })
	var found []*lock
	for i := from; i < len(locks) && strings.HasPrefix(locks[i].Name, prefix); i++ {
		if v.May(access.Read, locks[i].Name) {
			found = append(found, &locks[i])
		}
	}
	return found
}

// readRows reads the locks that are on one page: their names, each ended by a zero byte.
func (d *Dashboard) readRows(ctx context.Context, key string) ([]lock, error) {
	names := strings.Split(strings.TrimSuffix(key, "\x00"), "\x00")
	list, errs := d.client.Statuses(ctx, names)
	locks := make([]lock, len(list))
	for i, st := range list {
		switch {
		case errs[i] == nil:
			locks[i] = lockOf(st)
		case errors.Is(errs[i], tenure.ErrUnreadable), errors.Is(errs[i], tenure.ErrInvalid):
			locks[i] = unreadableLock(names[i], errs[i])
		default:
			return nil, errs[i]
		}
	}
	return locks, d.freed(ctx, locks)
}

// oldCensus is from which age on of a census the locks of a page are read once more: then it
// shows at once whose heartbeat is late.
const oldCensus = 3 * time.Second

// renewed returns the locks as they are now, if what is known of them is old.
func (d *Dashboard) renewed(ctx context.Context, locks []*lock, at time.Time) ([]*lock, time.Time) {
	if len(locks) == 0 || time.Since(at) < oldCensus {
		return locks, at
	}
	var key strings.Builder
	for _, l := range locks {
		if strings.Contains(l.Name, "\x00") {
			return locks, at
		}
		key.WriteString(l.Name + "\x00")
	}
	now := d.rows.ask(ctx, key.String())
	if !now.good || !now.at.After(at) {
		return locks, at
	}
	fresh := make([]*lock, len(now.value))
	for i := range now.value {
		fresh[i] = &now.value[i]
	}
	return fresh, now.at
}
