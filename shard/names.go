// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure/internal/text"
)

// Limits of names. A lock's name has room for both and for what stands between
// them.
const (
	// MaxNameLen is the longest name of a group in bytes.
	MaxNameLen = 512
	// MaxIDLen is the longest name of a partition in bytes.
	MaxIDLen = 256
)

// maxDataLen is package tenure's limit, too. It is checked here first, so that a mistake is
// not taken for an error of the store.
const maxDataLen = 256 << 10

// LockName returns the name of the lock that is a partition of the group. It is
// the resource that the partition's token fences.
func LockName(group, id string) string { return group + text.PartInfix + id }

// LeadName returns the name of the lock that the coordinator of the group holds.
func LeadName(group string) string { return group + text.LeadSuffix }

// RollName returns the name of the lock whose data is the roll of the group.
func RollName(group string) string { return group + text.RollSuffix }

// SpecName returns the name of the lock whose data says which partitions the
// group has.
func SpecName(group string) string { return group + text.SpecSuffix }

// MemberName returns the name of the lock that the worker in a place of the group
// holds.
func MemberName(group string, place int) string {
	return group + text.MemberInfix + strconv.Itoa(place)
}

// ParseLockName is the reverse of [LockName]. It returns false if lock is not
// the name of a partition.
func ParseLockName(lock string) (group, id string, ok bool) {
	// The first one counts: a group's name has none in it, a partition's may.
	group, id, ok = strings.Cut(lock, text.PartInfix)
	if !ok || group == "" || id == "" {
		return "", "", false
	}
	return group, id, true
}

// notOurs is the error of a lock that a coordinator needs, and a holder has that coordinates
// nothing: no worker plans meanwhile.
func notOurs(lock, owner string, token uint64) error {
	return fmt.Errorf("lock %q is held by %q (token %d), which does not coordinate the group, and nobody can plan: "+
		"end what holds it; if it is a lock of yours, choose another name for one of the two", lock, owner, token)
}

func checkName(name string) error {
	if err := text.CheckName("group name", name, MaxNameLen); err != nil {
		return err
	}
	for _, infix := range []string{text.PartInfix, text.MemberInfix} {
		if strings.Contains(name+infix[:len(infix)-1], infix) || strings.Contains(name, infix) {
			return fmt.Errorf("group name %.40q has %q in it: what comes after that would be taken for a part of the group", name, infix)
		}
	}
	return nil
}

func checkID(id string) error {
	return cmp.Or(checkText("partition name", id, MaxIDLen), text.CheckEnds("partition name", id))
}

func checkText(what, s string, most int) error {
	return cmp.Or(text.CheckNotEmpty(what, s, most), text.Check(what, s, most))
}
