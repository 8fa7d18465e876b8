// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"cloud.google.com/go/auth"
	"golang.org/x/oauth2"
	"google.golang.org/api/googleapi"
	"google.golang.org/grpc/status"

	"github.com/tenurelock/tenure/driver/objectmap"
)

// answerOf returns the status and the reason of an answer, 0 if there was none.
func answerOf(err error) (status int, reason string) {
	answer := (*googleapi.Error)(nil)
	if !errors.As(err, &answer) {
		return 0, ""
	}
	if len(answer.Errors) > 0 {
		reason = answer.Errors[0].Reason
	}
	return answer.Code, reason
}

// ofGRPC reports whether an error is of the client that speaks gRPC.
func ofGRPC(err error) bool {
	if status, _ := answerOf(err); status != 0 {
		return false // that of a JSON answer has one of gRPC as well
	}
	_, is := status.FromError(err)
	return is && err != nil
}

// writeFault is fault for a write. A condition that did not hold is one of the errors of
// package objectmap, which say for certain that nothing was written. A conflict (409) does not:
// it says only that another request was under way.
func (o *objects) writeFault(ctx context.Context, err error) error {
	if status, reason := answerOf(err); status == http.StatusPreconditionFailed && reason != orgPolicy {
		return fmt.Errorf("%w: %w", objectmap.ErrMismatch, brief(err))
	}
	return o.fault(ctx, err)
}

// fault says what an error of the server or on the way to it means, and what to do about it,
// and marks it so.
func (o *objects) fault(ctx context.Context, err error) error {
	if status, _ := answerOf(err); status == 0 && ctx.Err() != context.Canceled {
		o.Unheard()
	}
	m, advice := explain(err)
	return m.Fault(ctx, fmt.Sprintf("bucket %q", o.bucket), advice, brief(err))
}

const (
	unknown    = objectmap.Unknown
	slow       = objectmap.Slow
	notApplied = objectmap.NotApplied
	hopeless   = objectmap.Hopeless
)

// orgPolicy is the reason of an answer whose status looks like a failed condition but is not.
const orgPolicy = "orgPolicyConstraintFailed"

const (
	denied    = "access is denied, or the object is absent and the list is not granted; grant storage.objects.get, create, delete and list: the role Storage Object User has them"
	throttled = "throttled: the service lets one object be written about once a second"
	noCredits = "there are no credentials, or they are no longer valid; set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login, or give the machine a service account"
)

// reasons are the meanings of answers by reason:
// https://cloud.google.com/storage/docs/json_api/v1/status-codes. Any other reason is sorted
// by its status.
var reasons = map[string]struct {
	means  objectmap.Meaning
	advice string
}{
	"notFound":                {hopeless, "there is no such bucket; check its name and the endpoint"},
	orgPolicy:                 {hopeless, "a policy of the organization forbids the write"},
	"forbidden":               {hopeless, denied},
	"insufficientPermissions": {hopeless, denied},
	"accountDisabled":         {hopeless, "the account of the bucket's project has a problem"},
	"retentionPolicyNotMet":   {hopeless, "the bucket has a retention policy, so no object can be written a second time; keep locks in a bucket without one"},
	"objectUnderActiveHold":   {hopeless, "the object is under a hold, so it cannot be written; keep locks in a bucket without holds"},
	"uploadTooLarge":          {hopeless, "the record is too large for the server"},
	"rateLimitExceeded":       {slow, throttled},
	"userRateLimitExceeded":   {slow, throttled},
	"quotaExceeded":           {slow, "a quota of the project is used up"},
}

// explain sorts an error.
func explain(err error) (objectmap.Meaning, string) {
	if ofGRPC(err) {
		return hopeless, "the client speaks gRPC, which this store does not; create it with storage.NewClient"
	}
	status, reason := answerOf(err)
	if known, ok := reasons[reason]; ok {
		return known.means, known.advice
	}
	switch {
	case status == http.StatusUnauthorized:
		return hopeless, noCredits
	case status == http.StatusForbidden:
		return hopeless, denied
	case status == http.StatusTooManyRequests:
		return slow, throttled
	case status == http.StatusServiceUnavailable:
		return slow, "the service is overloaded"
	case status >= http.StatusInternalServerError:
		return unknown, "the server reports an internal error; try again"
	case status != 0:
		return unknown, "unexpected answer; check that the endpoint is one of Cloud Storage"
	}
	// The token is fetched before anything is sent to the bucket.
	refused, retrieved := (*auth.Error)(nil), (*oauth2.RetrieveError)(nil)
	if errors.As(err, &refused) || errors.As(err, &retrieved) {
		return notApplied, noCredits // not hopeless: what hands them out may be out of reach for a while
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return notApplied, "the endpoint cannot be reached; check the endpoint and the network"
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return notApplied, "the endpoint's name cannot be resolved; check the endpoint and the network"
	}
	return unknown, ""
}

// maxBrief is how much is shown of an answer that is not JSON.
const maxBrief = 200

// brief returns the error with a short text: the client's text repeats the URL of the
// request, or the whole answer.
func brief(err error) error {
	if answer := (*googleapi.Error)(nil); errors.As(err, &answer) {
		text := fmt.Sprintf("%d", answer.Code)
		switch _, reason := answerOf(err); {
		case reason != "" && reason != answer.Message:
			text += " " + reason + ": " + answer.Message
		case answer.Message != "":
			text += ": " + answer.Message
		case answer.Body != "":
			text += fmt.Sprintf(": %.*s", maxBrief, answer.Body)
		default:
			text += " " + http.StatusText(answer.Code)
		}
		return objectmap.Brief(text, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return objectmap.Brief("no answer in time", err)
	}
	if sent := (*url.Error)(nil); errors.As(err, &sent) {
		return objectmap.Brief(sent.Err.Error(), err)
	}
	return err
}
