// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"fmt"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tenurelock/tenure/evidence/chaos/replica"
)

// fenced is the state of a register behind a fence.
type fenced struct {
	value   string
	highest uint64
}

// asked is an operation on it, and told what its caller knows of the end.
type (
	asked struct {
		do    replica.Do
		token uint64
		value string
	}
	told struct {
		result  replica.Result
		value   string
		highest uint64
	}
)

// fencedModel is what a fenced register may do, one operation after another: a
// token that is not below all before it is let in, and any other is refused.
var fencedModel = porcupine.Model{
	Init: func() any { return fenced{} },
	Step: func(state, in, out any) (bool, any) {
		s, a, t := state.(fenced), in.(asked), out.(told) //nolint:forcetypeassert // nothing else is put in
		ok, after := s.step(a, t)
		return ok, after
	},
	Equal: func(a, b any) bool { return a == b },
	DescribeOperation: func(in, out any) string {
		return fmt.Sprintf("%+v -> %+v", in, out)
	},
}

func (s fenced) step(a asked, t told) (bool, fenced) {
	if a.token < s.highest {
		return t.result == replica.Unknown || t.result == replica.Refused && t.highest == s.highest, s
	}
	if t.result == replica.Refused {
		return false, s
	}
	s.highest = a.token
	if a.do == replica.Write {
		s.value = a.value
		return true, s
	}
	return t.result == replica.Unknown || t.value == s.value, s
}

// checkFenced searches for an order that explains what the callers of the
// fenced register were told.
func checkFenced(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(fencedModel, history, time.Minute)
}
