// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"container/list"
	"sync"

	"github.com/tenurelock/tenure/driver"
)

// lately is what a client has seen last of the records of holders elsewhere. It saves the
// read before a heartbeat, and decides nothing: each write names the version that it
// replaces.
type lately struct {
	mu     sync.Mutex
	all    map[string]*list.Element
	recent list.List // the latest in front
}

// maxLately bounds how many records are kept, and maxLatelyData how many data each may
// have: less than 100 MB in all.
const (
	maxLately     = 20_000
	maxLatelyData = 4 << 10
)

func (s *lately) of(key string) driver.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[key]; e != nil {
		return e.Value.(driver.Record)
	}
	return driver.Record{}
}

func (s *lately) note(rec driver.Record) {
	if len(rec.Data) > maxLatelyData {
		s.forget(rec.Key)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*list.Element{}
	}
	if e := s.all[rec.Key]; e != nil {
		e.Value = rec
		s.recent.MoveToFront(e)
		return
	}
	s.all[rec.Key] = s.recent.PushFront(rec)
	if s.recent.Len() > maxLately {
		delete(s.all, s.recent.Remove(s.recent.Back()).(driver.Record).Key)
	}
}

func (s *lately) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.all[key]; e != nil {
		s.recent.Remove(e)
		delete(s.all, key)
	}
}
