// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenuretest

import (
	"fmt"
	"sync"
	"time"

	"github.com/tenurelock/tenure/faultstore"
)

// network is the network between one client and the store.
type network struct {
	faults *faultstore.Store

	mu     sync.Mutex
	isCut  bool
	slow   time.Duration
	losing int // how many replies of writes are still to be lost
	remove func()
}

// cut cuts the network, or restores it.
func (n *network) cut(isCut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isCut = isCut
	n.faults.SetBlackHole(isCut)
}

func (n *network) heal() {
	n.cut(false)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow, n.losing = 0, 0
	n.rules()
}

func (n *network) setSlow(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow = d
	n.rules()
}

func (n *network) loseReplies(more int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.losing += more
	n.rules()
}

// rules sets the faults of the store to those of the network. The caller holds the mutex.
func (n *network) rules() {
	if n.remove != nil {
		n.remove()
		n.remove = nil
	}
	var rules []faultstore.Rule
	if n.losing > 0 {
		lost := faultstore.LoseReplyHang()
		lost.Before = n.slow / 2
		rules = append(rules, faultstore.Rule{Match: n.loses, Fault: lost})
	}
	if n.slow > 0 {
		rules = append(rules, faultstore.Rule{Fault: faultstore.Slow(n.slow/2, n.slow-n.slow/2)})
	}
	if len(rules) > 0 {
		n.remove = n.faults.Inject(rules...)
	}
}

// loses reports whether the reply of the call is to be lost, and counts it.
func (n *network) loses(call faultstore.Call) bool {
	if !call.Op.IsWrite() {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.losing == 0 {
		return false
	}
	n.losing--
	return true
}

func (n *network) state() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.isCut:
		return "partitioned"
	case n.slow > 0:
		return fmt.Sprintf("slow by %v", n.slow)
	case n.losing > 0:
		return fmt.Sprintf("to lose %d replies", n.losing)
	}
	return "healthy"
}
