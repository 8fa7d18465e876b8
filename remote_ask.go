// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package tenure

import (
	"context"

	"github.com/tenurelock/tenure/driver"
)

// RemoteRequest is what somebody asks of a holder through this process.
type RemoteRequest struct {
	Name string
	Kind RequestKind
	// By names the asker, for the holder and the history: printable, of at most
	// [driver.MaxOwnerLen] bytes. If empty, it is the owner name of this client.
	By     string
	Reason string
	// To or ToLabel say to whom to hand over; both are empty in requests of another kind.
	To, ToLabel string
}

// Ask does what [Client.StepDown], [Client.Transfer], [Client.TransferToLabel],
// [Client.ReleaseDead] or [Client.Revoke] does, by the kind, in the name of By. The error
// matches [ErrInvalid] if the request breaks a rule.
func (r *Remote) Ask(ctx context.Context, q RemoteRequest) error {
	op, handOver := askOps[q.Kind], q.Kind == RequestHandOver
	var err error
	switch {
	case op == "":
		op, err = "ask", invalid("kind %.40q of a request is not known", q.Kind)
	case !handOver && (q.To != "" || q.ToLabel != ""):
		err = invalid("a request to %s has no To and no ToLabel: they are for a hand-over", op)
	case handOver && q.To != "" && q.ToLabel != "":
		err = invalid("a hand-over is to an owner or to a label: leave To or ToLabel empty")
	case handOver && q.ToLabel != "":
		err = checkHeirs(q.ToLabel)
	case handOver:
		err = checkHeir(q.To)
	}
	if err == nil {
		err = checkText("name of the asker", q.By)
	}
	if err != nil {
		return wrap(op, q.Name, err)
	}
	return r.c.ask(ctx, op, q.Name, driver.Request{Kind: driver.RequestKind(q.Kind), By: q.By, Reason: q.Reason, To: q.To, ToLabel: q.ToLabel})
}

// askOps are the operations that errors name.
var askOps = map[RequestKind]string{
	RequestStepDown: "step down", RequestHandOver: "transfer", RequestReleaseDead: "release", RequestRevoke: "revoke",
}
