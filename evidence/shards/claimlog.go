// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/tenurelock/tenure/evidence/bed/proc"
)

// claimLog is where a worker notes when its handlers' Check passed, and when it
// sent its last heartbeat. It is a file in memory, so that what a worker has noted
// is there when it was killed in the next instant, and noting costs nothing.
//
// All instants are of one clock, that of [proc.Monotonic], which all processes of a
// machine share: they can be compared as they are.
type claimLog struct {
	mu   sync.Mutex
	mem  []byte
	next int
}

// A slot holds a partition, a token, and when Check passed first and last.
const (
	slotBytes = 32
	slots     = 1 << 15
	logBytes  = slotBytes * (slots + 1) // the first one holds the last heartbeat
)

func createLog(path string) (*claimLog, error) {
	mem, err := proc.Map(path, logBytes)
	return &claimLog{mem: mem}, err
}

// slot is the record of one tenure of a handler. The caller of its methods sees to
// it that there is one at a time.
type slot []byte

// open begins a record: Check has passed, and after that it was this late.
func (l *claimLog) open(partition int, token uint64, now int64) (slot, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next++; l.next > slots {
		return nil, fmt.Errorf("the log has room for %d tenures", slots)
	}
	s := slot(l.mem[l.next*slotBytes:][:slotBytes])
	binary.LittleEndian.PutUint64(s, uint64(partition))
	binary.LittleEndian.PutUint64(s[16:], uint64(now))
	binary.LittleEndian.PutUint64(s[24:], uint64(now))
	binary.LittleEndian.PutUint64(s[8:], token) // last: from now on it counts
	return s, nil
}

// passed notes that Check has passed again, at this instant or later.
func (s slot) passed(at int64) { binary.LittleEndian.PutUint64(s[24:], uint64(at)) }

// beat notes that a heartbeat is sent.
func (l *claimLog) beat(at int64) { binary.LittleEndian.PutUint64(l.mem, uint64(at)) }

// tenureOf is what a log says of one tenure of a handler: its Check passed at Begin
// or before, and at Last or later.
type tenureOf struct {
	Worker      string
	Partition   int
	Token       uint64
	Begin, Last int64
}

// readLog returns what a worker has noted.
func readLog(path, worker string) (all []tenureOf, beat int64, err error) {
	mem, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	if len(mem) != logBytes {
		return nil, 0, fmt.Errorf("%s has %d bytes, not %d", path, len(mem), logBytes)
	}
	beat = int64(binary.LittleEndian.Uint64(mem))
	for at := slotBytes; at < logBytes; at += slotBytes {
		s := mem[at:]
		if token := binary.LittleEndian.Uint64(s[8:]); token > 0 {
			all = append(all, tenureOf{
				worker, int(binary.LittleEndian.Uint64(s)), token,
				int64(binary.LittleEndian.Uint64(s[16:])), int64(binary.LittleEndian.Uint64(s[24:])),
			})
		}
	}
	return all, beat, nil
}

// ownedTwice returns where the logs show that two workers had a partition at once:
// Check of one passed, and later that of another one with a lower token. What is
// compared are the last instant at which the former one's Check had not passed yet
// and the first one at which the latter's had, so that a pause between a Check and
// the look at the clock is no finding. Two with one token are one, too.
func ownedTwice(all []tenureOf) (found []string) {
	slices.SortFunc(all, func(a, b tenureOf) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Token, b.Token), cmp.Compare(a.Begin, b.Begin))
	})
	var longest tenureOf // of the partition: the one whose Check passed last
	for i, t := range all {
		if i == 0 || all[i-1].Partition != t.Partition {
			longest = t
			continue
		}
		switch before := all[i-1]; {
		case before.Token == t.Token:
			found = append(found, fmt.Sprintf("partition %d: %s and %s both had token %d", t.Partition, before.Worker, t.Worker, t.Token))
		case longest.Last > t.Begin:
			found = append(found, fmt.Sprintf("partition %d: %s passed its Check under token %d for %.3f ms after %s had under %d",
				t.Partition, longest.Worker, longest.Token, float64(longest.Last-t.Begin)/1e6, t.Worker, t.Token))
		}
		if t.Last > longest.Last {
			longest = t
		}
	}
	return found
}
