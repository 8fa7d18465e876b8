// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package protocol_test

import (
	"fmt"
	"strings"

	"github.com/tenurelock/tenure/driver"
)

// status shows the state of the actors.
func (p *world) status() {
	var looks []string
	for _, a := range p.order {
		if a.looks > 0 {
			looks = append(looks, fmt.Sprintf("%s %d", a.name, a.looks))
			a.looks = 0
		}
	}
	if len(looks) > 0 {
		p.say("looks: %s", strings.Join(looks, ", "))
	}
	if p.found {
		p.say("= %s", told(p.rec))
	}
	for _, a := range p.order {
		if a.h == nil {
			continue
		}
		if !a.h.Over() {
			p.say("= %s has its deadline at %.3fs, expired: %v", a.name, a.h.Deadline().Seconds(), a.h.Expired())
		}
	}
}

var answers = [...]string{"", "delivered", "done", "nobody to ask", "changed", "another request is pending", "foreign", "alive", "it has it already", "unusable", "abandoned"}

// told describes a record.
func told(rec driver.Record) string {
	text := fmt.Sprintf("%s %s, beat %s: ", rec.State, rec.Version, rec.Beat)
	switch {
	case rec.Owner == "":
		text += "for nobody"
	case rec.State == driver.Reserved:
		text += "for " + rec.Owner
	default:
		text += "by " + rec.Owner
	}
	text += fmt.Sprintf(", token %d", rec.Token)
	if rec.State == driver.Reserved {
		text += fmt.Sprintf(", %v", rec.Lease)
	}
	for _, q := range rec.Requests {
		text += "," + wish(&q)
	}
	if rec.End != "" {
		text += fmt.Sprintf(", %s%s", rec.End, wish(rec.Asked))
	}
	if t := rec.Prev; t != nil {
		text += fmt.Sprintf("; before: %s, token %d, %s%s", t.Owner, t.Token, t.End, wish(t.Asked))
	}
	return text
}

func wish(q *driver.Request) string {
	switch {
	case q == nil:
		return ""
	case q.To != "":
		return fmt.Sprintf(" (%s asks: %s to %s)", q.By, q.Kind, q.To)
	}
	return fmt.Sprintf(" (%s asks: %s)", q.By, q.Kind)
}
