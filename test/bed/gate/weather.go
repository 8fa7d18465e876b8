// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package gate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	Again       Fault = "carried out again"     // much later, too, whoever is there then
	BadGateway  Fault = "502 after it was done" // with a page of HTML
	GaveUp      Fault = "504 before it is done" // it is carried out later
	Cut         Fault = "answer cut"            // the connection ends in the middle of it
	Cached      Fault = "GET from the cache"    // with the answer of an earlier call

	Hole Fault = "black hole" // no answer, and no end of the connection
)

// drawn are the faults that chance deals, in the order in which they are drawn.
var drawn = []Fault{LoseRequest, LoseAnswer, Delay, DelayAnswer, Double, Again, BadGateway, GaveUp, Cut, Cached}

// Weather is how likely each fault is, of one call, and how long delays are.
type Weather struct {
	Chance map[Fault]float64
	// Late is how late a call or its answer is at most, and Again how much later it is
	// carried out again at most.
	Late, Again time.Duration
}

// Fair has no faults.
var Fair = Weather{}

// Storm has all of them, with the times that matter to a lease: a heartbeat that is late by
// less than a lease, and one that comes again when the lease is another's.
func Storm(lease time.Duration) Weather {
	return Weather{
		Chance: map[Fault]float64{
			LoseRequest: 0.03, LoseAnswer: 0.04, Delay: 0.05, DelayAnswer: 0.05, Double: 0.06, Again: 0.06,
			BadGateway: 0.03, GaveUp: 0.02, Cut: 0.03, Cached: 0.5,
		},
		Late: lease / 2, Again: 3 * lease,
	}
}

// check returns an error if it is no weather.
func (w Weather) check() error {
	sum := 0.0
	for fault, p := range w.Chance {
		switch {
		case !slices.Contains(drawn, fault):
			return fmt.Errorf("weather: %q is not drawn: want one of %s", fault, listed(drawn))
		case p < 0 || p > 1:
			return fmt.Errorf("weather: the chance of %q is %v: want 0 to 1", fault, p)
		case fault != Cached: // which is of GETs alone
			sum += p
		}
	}
	if sum > 1 {
		return fmt.Errorf("weather: the chances add up to %v: want 1 at most", sum)
	}
	return nil
}

func listed(faults []Fault) string {
	names := make([]string, len(faults))
	for i, f := range faults {
		names[i] = string(f)
	}
	return strings.Join(names, ", ")
}

// draw returns what happens to a call, with when and where: all that is left to chance.
func (w Weather) draw(random *rand.Rand, get bool, servers int) fate {
	f := fate{server: random.IntN(servers), late: upTo(random, w.Late), again: upTo(random, w.Again)}
	x := random.Float64()
	for _, fault := range drawn {
		p := w.Chance[fault]
		if fault == Cached && !get {
			continue
		}
		if x < p {
			f.fault = fault
			break
		}
		x -= p
	}
	return f
}

func upTo(random *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(random.Float64() * float64(most))
}

// fate is what happens to one call.
type fate struct {
	fault       Fault
	server      int
	late, again time.Duration
}
