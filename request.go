// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"time"

	"github.com/tenurelock/tenure/driver"
)

// RequestKind says what a request asks for.
type RequestKind string

// What a [Request] asks for.
const (
	RequestStepDown    RequestKind = RequestKind(driver.StepDown)    // stop, and release the lock
	RequestHandOver    RequestKind = RequestKind(driver.HandOver)    // stop, and make way for To, or ToLabel
	RequestReleaseDead RequestKind = RequestKind(driver.ReleaseDead) // an operator's release of a dead holder's lock
	RequestRevoke      RequestKind = RequestKind(driver.Revoke)      // an operator's taking of the lock
	RequestFail        RequestKind = RequestKind(driver.Fail)        // what a holder says of itself whose work has failed
	RequestRaise       RequestKind = RequestKind(driver.Raise)       // an operator's raising of the token, after a loss of the store
)

// Request is what somebody asked of the holder of a lock.
type Request struct {
	Kind   RequestKind
	By     string // the owner name of the requester
	Reason string
	To     string // the owner that is to have the lock next
	// ToLabel is the label of those who are to have it next: see
	// [Client.TransferToLabel].
	ToLabel string
	At      time.Time // by the requester's clock
}

func requestOf(q *driver.Request) *Request {
	if q == nil {
		return nil
	}
	return &Request{Kind: RequestKind(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel, At: q.At}
}
