// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"math/rand/v2"
	"time"
)

// Fault is what happens to a call.
type Fault string

// The faults. A call has one of them, or none.
const (
	None        Fault = ""
	LoseRequest Fault = "request lost"          // it never arrives, and the connection ends
	LoseAnswer  Fault = "answer lost"           // it is carried out, and the connection ends
	Delay       Fault = "request delayed"       // it arrives late
	DelayAnswer Fault = "answer delayed"        // it is carried out at once, and answered late
	Double      Fault = "carried out twice"     // at the same time; the first answer counts
	Again       Fault = "carried out again"     // and again much later, when another process may hold the lock
	BadGateway  Fault = "502 after it was done" // with a page of HTML
	GaveUp      Fault = "504 before it is done" // it is carried out later
	Cut         Fault = "answer cut"            // the connection ends in the middle of it

	Hole Fault = "black hole" // no answer, and no end of the connection
)

// drawn are the faults that chance deals, in the order in which they are drawn.
var drawn = []Fault{LoseRequest, LoseAnswer, Delay, DelayAnswer, Double, Again, BadGateway, GaveUp, Cut}

// Weather is how likely each fault is, of one call, and how long delays are. The chances add up to 1
// at most.
type Weather struct {
	Chance map[Fault]float64
	// Late is how late a call or its answer is at most, and Again how much later it is
	// carried out again at most.
	Late, Again time.Duration
}

// Fair has no faults.
var Fair = Weather{}

// Storm has all of them, with the times that matter to a lease: a heartbeat that is late by
// less than a lease, and a duplicate that arrives when another process has the lease.
func Storm(lease time.Duration) Weather {
	return Weather{
		Chance: map[Fault]float64{
			LoseRequest: 0.03, LoseAnswer: 0.04, Delay: 0.05, DelayAnswer: 0.05, Double: 0.06, Again: 0.06,
			BadGateway: 0.03, GaveUp: 0.02, Cut: 0.03,
		},
		Late: lease / 2, Again: 3 * lease,
	}
}

// draw returns what happens to a call, with when and where: all that is left to chance.
func (w Weather) draw(random *rand.Rand, servers int) fate {
	upTo := func(most time.Duration) time.Duration { return time.Duration(random.Float64() * float64(most)) }
	f := fate{server: random.IntN(servers), late: upTo(w.Late), again: upTo(w.Again)}
	x := random.Float64()
	for _, fault := range drawn {
		p := w.Chance[fault]
		if x < p {
			f.fault = fault
			break
		}
		x -= p
	}
	return f
}

// fate is what happens to one call.
type fate struct {
	fault       Fault
	server      int
	late, again time.Duration
}
