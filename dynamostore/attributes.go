// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// ownPrefix begins the names of attributes that are reserved for Tenure, also
// for later versions.
const ownPrefix = "tenure"

// grant adds to a write that gives a lock to rec's owner what the user wants to
// have in its item. It does nothing for other writes, and for Tenure's own records.
func (s *Store) grant(e *expression, rec driver.Record) error {
	if s.options.Attributes == nil || rec.State != driver.Held || strings.HasPrefix(rec.Key, driver.OwnPrefix) {
		return nil
	}
	shown := rec.Clone()
	shown.Token, shown.Prev = 0, nil // which mostly the engine alone knows
	wanted := s.options.Attributes(shown)
	for i, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := s.options.checkAttribute(name); err != nil {
			return driver.NotApplied(driver.Permanent(fmt.Errorf("lock %q: Options.Attributes: %w", rec.Key, err)))
		}
		if wanted[name] == nil {
			return driver.NotApplied(driver.Permanent(fmt.Errorf("lock %q: Options.Attributes: attribute %q has no value: leave it out", rec.Key, name)))
		}
		placeholder := "u" + strconv.Itoa(i)
		e.user = append(e.user, name)
		e.set = append(e.set, "#"+placeholder+" = :"+placeholder)
		e.values[":"+placeholder] = wanted[name]
	}
	return nil
}

func (o *Options) checkAttribute(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("an attribute has no name")
	case name == o.PartitionKey, name == o.SortKey:
		return fmt.Errorf("attribute %q is a key of the table", name)
	case ownAttributes[name], strings.HasPrefix(name, ownPrefix), name == attrForeign:
		return fmt.Errorf("attribute %q is reserved: a lock's item has %s, and names that begin with %q are for later versions; choose another name",
			name, strings.Join(ownNames(), ", "), ownPrefix)
	}
	return nil
}
