// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/driver/recordcodec"
)

// The annotations and labels of a Lease. Electors of client-go leave them as they are.
const (
	domain = "tenurelock.github.io/"

	// noteKey is the key of the record, which the name of the object may not show.
	noteKey = domain + "key"
	// noteRecord is the record, as text of package recordcodec, without long data.
	noteRecord = domain + "record"
	// noteToken is the token of the record, or Tenure's last token if another client has
	// written the Lease since.
	noteToken = domain + "token"
	// noteWritten is the stamp of the spec that belongs to the record. If the spec of
	// the Lease has another stamp, another client has written it.
	noteWritten = domain + "written"
	// noteWake changes with each write that waiters must see.
	noteWake = domain + "wake"
	// noteParts lists the parts that are kept in objects of their own.
	noteParts = domain + "parts"

	labelStore = domain + "store" // the prefix of the store, without its last dot
	labelKind  = domain + "kind"
)

// parts are what does not fit into a Lease.
type parts struct {
	Data   *part `json:"data,omitempty"`
	Record *part `json:"record,omitempty"`
}

// part names an object that is written before the Lease, and never again.
type part struct {
	Name string `json:"name"`
	Sum  string `json:"sum"` // SHA-256 of what is in it
}

// write is the patch that changes a Lease, or a whole new Lease. It removes an
// annotation that is nil.
type write struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   writeMeta    `json:"metadata"`
	Spec       v1.LeaseSpec `json:"spec"`
}

type writeMeta struct {
	Name            string             `json:"name"`
	Namespace       string             `json:"namespace"`
	ResourceVersion string             `json:"resourceVersion,omitempty"`
	Labels          map[string]string  `json:"labels"`
	Annotations     map[string]*string `json:"annotations"`
}

// encode returns the write that replaces a state with the record, and the resulting
// state. The text does not contain parts.
func (s *Store) encode(is *state, rec driver.Record, text string, apart parts, wakes bool, now time.Time) (write, state) {
	becomes := state{rec: rec, parts: apart, wake: is.wake, spec: s.specOf(is, rec, now)}
	if wakes || !is.found() {
		becomes.wake = rec.Version
	}
	w := write{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Spec: becomes.spec}
	w.Metadata = writeMeta{
		Name: s.object(rec.Key), Namespace: s.namespace, ResourceVersion: is.rev,
		Labels: map[string]string{labelStore: s.label(), labelKind: kindOf(rec.Key)},
	}
	notes := map[string]*string{noteParts: nil, noteRecord: nil}
	note := func(name, value string) { notes[name] = &value }
	note(noteKey, rec.Key)
	note(noteToken, strconv.FormatUint(rec.Token, 10))
	note(noteWritten, stamp(&becomes.spec))
	note(noteWake, becomes.wake)
	if apart.Record == nil {
		note(noteRecord, text)
	}
	if apart != (parts{}) {
		list, err := json.Marshal(apart)
		if err != nil {
			panic(fmt.Sprintf("k8sstore: parts cannot be encoded: %v", err)) //nolint:forbidigo // strings always can
		}
		note(noteParts, string(list))
	}
	if !is.found() { // nothing to be removed
		for name, value := range notes {
			if value == nil {
				delete(notes, name)
			}
		}
	}
	w.Metadata.Annotations = notes
	return w, becomes
}

func (s *Store) label() string { return strings.TrimSuffix(s.options.Prefix, ".") }

// specOf returns the spec as an elector of client-go would fill it. Its times are for
// people, and for electors, which watch them change; Tenure does not use them.
func (s *Store) specOf(is *state, rec driver.Record, now time.Time) v1.LeaseSpec {
	now = now.UTC().Truncate(time.Microsecond)
	if was := is.spec.RenewTime; was != nil && was.Equal(&metav1.MicroTime{Time: now}) {
		now = now.Add(time.Microsecond) // each write is a sign of life
	}
	since := rec.Since.UTC().Truncate(time.Microsecond)
	if year := since.Year(); rec.Since.IsZero() || year < 1 || year > 9999 {
		since = now
	}
	var transitions int32
	if is.found() {
		if was := is.spec.LeaseTransitions; was != nil {
			transitions = *was
		}
		if rec.Token != is.rec.Token && transitions < math.MaxInt32 {
			transitions++
		}
	}
	owner, seconds := rec.Owner, wholeSeconds(rec.Lease)
	switch rec.State {
	case driver.Released, driver.Past, driver.Closed:
		owner, seconds = "", 1 // as an elector releases it
	}
	if owner == "" && rec.State == driver.Reserved {
		owner = "reserved" // without a holder an elector would take it at once
	}
	return v1.LeaseSpec{
		HolderIdentity: &owner, LeaseDurationSeconds: &seconds, LeaseTransitions: &transitions,
		AcquireTime: &metav1.MicroTime{Time: since}, RenewTime: &metav1.MicroTime{Time: now},
	}
}

// wholeSeconds rounds up: a holder may be waited for longer, never shorter.
func wholeSeconds(d time.Duration) int32 {
	n := (d + time.Second - 1) / time.Second
	return int32(min(max(n, 1), math.MaxInt32)) //nolint:gosec // it is between the two
}

// stamp identifies a spec: it differs after a heartbeat of its holder, a release,
// or a change of holder. It has the form of a version.
func stamp(spec *v1.LeaseSpec) string {
	var all strings.Builder
	at := func(t *metav1.MicroTime) int64 {
		if t == nil {
			return math.MinInt64
		}
		return t.UnixMicro()
	}
	number := func(n *int32) int64 {
		if n == nil {
			return -1
		}
		return int64(*n)
	}
	fmt.Fprintln(&all, at(spec.RenewTime), at(spec.AcquireTime), number(spec.LeaseDurationSeconds), number(spec.LeaseTransitions))
	if spec.HolderIdentity != nil {
		all.WriteString(*spec.HolderIdentity)
	}
	sum := sha256.Sum256([]byte(all.String()))
	return stampBegin + hex.EncodeToString(sum[:16])
}

// stampBegin begins every stamp, and no version that Tenure makes.
const stampBegin = "lease-"

// Foreign reports whether a record that the store has returned is from a Lease that
// another client wrote last, such as an elector of client-go.
func Foreign(rec driver.Record) bool { return strings.HasPrefix(rec.Version, stampBegin) }

// decode returns the state of a Lease. Its record does not have the parts yet: see
// [Store.complete].
func (s *Store) decode(key string, o *v1.Lease) state {
	is := state{rev: o.ResourceVersion, wake: o.Annotations[noteWake], spec: o.Spec}
	is.foreign = o.Annotations[noteWritten] != stamp(&o.Spec)
	is.rec, is.err = s.understand(key, o, &is)
	return is
}

func (s *Store) understand(key string, o *v1.Lease, is *state) (rec driver.Record, err error) {
	notes := o.Annotations
	if of, ok := notes[noteKey]; ok && of != key {
		return rec, fmt.Errorf("it is the Lease of %.60q", of)
	}
	if list := notes[noteParts]; list != "" {
		if err := json.Unmarshal([]byte(list), &is.parts); err != nil {
			return rec, fmt.Errorf("annotation %s: %w", noteParts, err)
		}
	}
	var token uint64
	if text, ok := notes[noteToken]; ok {
		if token, err = strconv.ParseUint(text, 10, 64); err != nil || token > driver.MaxToken || token == 0 {
			return rec, fmt.Errorf("annotation %s is %.40q, not a whole number from 1 to %d", noteToken, text, uint64(driver.MaxToken))
		}
	} else if len(notes[noteRecord]) > 0 || is.parts.Record != nil {
		// Without the last token, tokens would begin at 1 again.
		return rec, fmt.Errorf("it has no annotation %s", noteToken)
	}
	if is.foreign {
		return foreignRecord(key, o, token)
	}
	if is.parts.Record == nil {
		rec, err = recordcodec.Decode(notes[noteRecord])
		if err != nil {
			return driver.Record{}, err
		}
	}
	return rec, checkOwn(key, token, rec, is.parts.Record != nil)
}

// checkOwn returns an error unless a record matches the other annotations.
func checkOwn(key string, token uint64, rec driver.Record, absent bool) error {
	switch {
	case absent:
	case rec.Key != key:
		return fmt.Errorf("it has the record of %.60q", rec.Key)
	case rec.Token != token:
		return fmt.Errorf("its record has token %d, but annotation %s is %d", rec.Token, noteToken, token)
	}
	return nil
}

// foreignRecord returns the record of a Lease that another client wrote. That is a
// change of holder, so it has the token after Tenure's last, although that client
// granted none. The data of the lock are the last of Tenure's.
func foreignRecord(key string, o *v1.Lease, floor uint64) (rec driver.Record, err error) {
	rec = driver.Record{Key: key, Version: stamp(&o.Spec), Token: min(floor, driver.MaxToken-1) + 1, State: driver.Released, Lease: time.Second}
	if left, err := recordcodec.DecodePart(o.Annotations[noteRecord]); err == nil {
		rec.Data = left.Data
	}
	if d := o.Spec.LeaseDurationSeconds; d != nil && *d > 0 {
		rec.Lease = time.Duration(*d) * time.Second
	} else if h := o.Spec.HolderIdentity; h != nil && *h != "" {
		return driver.Record{}, errors.New("it has a holder, but no leaseDurationSeconds")
	}
	if h := o.Spec.HolderIdentity; h != nil && *h != "" {
		rec.State, rec.Owner = driver.Held, cut(strings.ReplaceAll(*h, "\x00", "\ufffd"), driver.MaxOwnerLen)
	}
	if at := o.Spec.AcquireTime; at != nil {
		rec.Since = at.UTC()
	}
	if at := o.Spec.RenewTime; at != nil && rec.State == driver.Released {
		rec.Until = at.UTC()
	}
	return rec, nil
}

// cut returns the beginning of a text.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}

// markOf returns what a watch compares: it changes with every change that waiters must
// see, and with no heartbeat.
func markOf(o *v1.Lease) string {
	now := stamp(&o.Spec)
	switch h := o.Spec.HolderIdentity; {
	case o.Annotations[noteWritten] == now:
		return o.Annotations[noteWake]
	case h == nil || *h == "":
		return "free " + now
	}
	return "held by another client"
}

// unreadable marks an error of the content of a Lease.
func (s *Store) unreadable(key string, err error) error {
	return fmt.Errorf("lease %s/%s: %w: %w", s.namespace, s.object(key), driver.ErrUnreadable, err)
}
