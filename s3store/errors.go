// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package s3store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tenurelock/tenure/driver/objectmap"
)

// noSuchKey is the code of an answer that there is no such object.
const noSuchKey = "NoSuchKey"

// codeOf returns the code of an error that the server has answered, "" if it has not.
func codeOf(err error) string {
	if unsent := (*unsentError)(nil); errors.As(err, &unsent) {
		return "" // the source of the credentials has codes of its own
	}
	if api := smithy.APIError(nil); errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// statusOf returns the status of an answer, 0 if there was none.
func statusOf(err error) int {
	if answer := (*smithyhttp.ResponseError)(nil); errors.As(err, &answer) && answer.Response != nil && answer.Response.Response != nil {
		return answer.HTTPStatusCode()
	}
	return 0
}

// writeFault is fault for a write. A condition that did not hold is one of the errors of
// package objectmap, which say for certain that nothing was written.
func (o *objects) writeFault(ctx context.Context, err error, match bool) error {
	switch status, code := statusOf(err), codeOf(err); {
	case status == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %w", objectmap.ErrMismatch, brief(err))
	case status == http.StatusNotFound && code == noSuchKey && match:
		return fmt.Errorf("%w: %w", objectmap.ErrMismatch, brief(err))
	case status == http.StatusConflict && code == "ConditionalRequestConflict":
		// Other conflicts do not: an aborted operation, a file in the place of a folder.
		return fmt.Errorf("%w: %w", objectmap.ErrBusy, brief(err))
	}
	return o.fault(ctx, err)
}

// fault says what an error of the server or on the way to it means, and what to do about it,
// and marks it so.
func (o *objects) fault(ctx context.Context, err error) error {
	m, advice := explain(err)
	return m.Fault(ctx, fmt.Sprintf("bucket %q", o.bucket), advice, brief(err))
}

const (
	unknown    = objectmap.Unknown
	slow       = objectmap.Slow
	notApplied = objectmap.NotApplied
	hopeless   = objectmap.Hopeless
)

// codes are the meanings of answers by code:
// https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html. Any other code
// leaves the outcome open.
var codes = map[string]struct {
	means  objectmap.Meaning
	advice string
}{
	"NoSuchBucket":                       {hopeless, "there is no such bucket; check its name, the region and the endpoint"},
	"InvalidBucketName":                  {hopeless, "the bucket's name is not valid"},
	"PermanentRedirect":                  {hopeless, "the bucket is in another region; set that region"},
	"AuthorizationHeaderMalformed":       {hopeless, "the bucket is in another region; set that region"},
	"IllegalLocationConstraintException": {hopeless, "the bucket is in another region; set that region"},
	"TemporaryRedirect":                  {notApplied, "the bucket is in another region; set that region"},
	"AccessDenied":                       {hopeless, "access is denied, or the object is absent and ListBucket is not granted; \"tenure table policy\" prints the rights that are needed"},
	"AllAccessDisabled":                  {hopeless, "all access to the bucket is disabled"},
	"AccountProblem":                     {hopeless, "the account has a problem"},
	"InvalidAccessKeyId":                 {hopeless, "the access key is not known; check the credentials"},
	"SignatureDoesNotMatch":              {hopeless, "the signature is wrong; check the secret access key"},
	"NotImplemented":                     {hopeless, "the server lacks what Tenure needs: PutObject with If-Match and If-None-Match"},
	"MethodNotAllowed":                   {hopeless, "the server refuses the request; check that the endpoint speaks S3's protocol"},
	"EntityTooLarge":                     {hopeless, "the record is too large for the server"},
	"InvalidRequest":                     {hopeless, "the server or a setting of the bucket forbids such a request"},
	"BadDigest":                          {notApplied, "the request was damaged on its way; if this goes on, look for a proxy that changes bodies"},
	"ExpiredToken":                       {notApplied, "the credentials have expired; renew them"},
	"InvalidToken":                       {notApplied, "the credentials are not valid here; renew them"},
	"RequestTimeTooSkewed":               {notApplied, "the clock of this machine is wrong; set it"},
	"RequestExpired":                     {notApplied, "the clock of this machine is wrong; set it"},
	"SlowDown":                           {slow, "throttled"},
	"ServiceUnavailable":                 {slow, "throttled"},
	"TooManyRequests":                    {slow, "throttled"},
	"TooManyRequestsException":           {slow, "throttled"},
	"RequestTimeout":                     {unknown, ""},
}

// explain sorts an error.
func explain(err error) (objectmap.Meaning, string) {
	if unsent := (*unsentError)(nil); errors.As(err, &unsent) {
		switch text := strings.ToLower(err.Error()); {
		case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
			return notApplied, ""
		case strings.Contains(text, "credential"), strings.Contains(text, "get identity"):
			// Not hopeless: the service that issues them may be unreachable for a while.
			return notApplied, "there are no credentials; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
		case strings.Contains(text, "region"):
			return hopeless, "the region is missing or wrong; set it in the client's configuration, or AWS_REGION, or region= in the URL"
		}
		return notApplied, "the request was not sent"
	}
	status := statusOf(err)
	if known, ok := codes[codeOf(err)]; ok {
		return known.means, known.advice
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return hopeless, codes["AccessDenied"].advice
	case status == http.StatusNotImplemented:
		return hopeless, codes["NotImplemented"].advice
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return slow, "throttled"
	case status >= http.StatusInternalServerError:
		return unknown, "the server reports an internal error; try again"
	case status != 0:
		return unknown, "unexpected answer; check that the endpoint speaks S3's protocol"
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return notApplied, "the endpoint cannot be reached; check the region, the endpoint and the network"
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return notApplied, "the endpoint's name cannot be resolved; check the region, the endpoint and the network"
	}
	return unknown, ""
}

// brief returns the error with a short text: the SDK's text repeats the name of the
// operation and has ids of the request.
func brief(err error) error {
	if api := smithy.APIError(nil); codeOf(err) != "" && errors.As(err, &api) {
		text := api.ErrorCode()
		if message := api.ErrorMessage(); message != "" && message != text {
			text += ": " + message
		}
		return objectmap.Brief(text, err)
	}
	if statusOf(err) == 0 && errors.Is(err, context.DeadlineExceeded) {
		return objectmap.Brief("no answer in time", err)
	}
	if send := (*smithyhttp.RequestSendError)(nil); errors.As(err, &send) && send.Err != nil {
		return objectmap.Brief(send.Err.Error(), err)
	}
	if op := (*smithy.OperationError)(nil); errors.As(err, &op) && op.Err != nil {
		return objectmap.Brief(op.Err.Error(), err)
	}
	return err
}
