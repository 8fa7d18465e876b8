// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/tenurelock/tenure/driver"
)

// conditionFailed reports whether err says that the condition of a write did
// not hold, and returns the current item if the engine sent it.
func conditionFailed(err error) (item, bool) {
	if failed := (*types.ConditionalCheckFailedException)(nil); errors.As(err, &failed) {
		return failed.Item, true
	}
	cancelled := (*types.TransactionCanceledException)(nil)
	if errors.As(err, &cancelled) {
		for i, reason := range cancelled.CancellationReasons {
			if !conditional(reason) {
				continue
			}
			if i == 0 {
				return reason.Item, true // the lock's own
			}
			return nil, true
		}
	}
	return nil, false
}

// conditional reports whether a transaction was cancelled because a condition did
// not hold.
func conditional(reason types.CancellationReason) bool {
	return aws.ToString(reason.Code) == "ConditionalCheckFailed"
}

// meaning is what an error says of the write that met it.
type meaning int

const (
	unknown    meaning = iota // the write may have been applied, or may yet be
	notApplied                // it was not, and will not be
	hopeless                  // it was not, and trying again does not help
)

// fault says what an error of DynamoDB or on the way to it means, and what to
// do about it, and marks it so.
func (s *Store) fault(ctx context.Context, err error) error {
	m, advice := explain(err)
	slow := m == notApplied && throttled(err)
	where := fmt.Sprintf("dynamodb table %q", s.table)
	if region := s.client.Options().Region; region != "" {
		where += " in " + region
	}
	told := fmt.Errorf("%s: %w", where, brief(err))
	if advice != "" {
		told = fmt.Errorf("%s: %s: %w", where, advice, brief(err))
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		told = fmt.Errorf("%w: %w", ctx.Err(), told)
	}
	if slow {
		told = driver.Throttled(told)
	}
	switch m {
	case hopeless:
		return driver.NotApplied(driver.Permanent(told))
	case notApplied:
		return driver.NotApplied(told)
	}
	return told
}

// briefError has a short text for an error of the SDK, whose own text repeats
// the name of the operation and has ids of the request that do not help here.
type briefError struct {
	text string
	err  error
}

func (e *briefError) Error() string { return e.text }
func (e *briefError) Unwrap() error { return e.err }

func brief(err error) error {
	if unsent := (*unsentError)(nil); !errors.As(err, &unsent) && errors.Is(err, context.DeadlineExceeded) && silent(err) {
		return &briefError{"no answer in time", err}
	}
	if api := smithy.APIError(nil); errors.As(err, &api) {
		text := api.ErrorCode()
		if message := api.ErrorMessage(); message != "" {
			text += ": " + message
		}
		for _, reason := range throttlingReasons(err) {
			text += " (" + reason + ")"
		}
		return &briefError{text, err}
	}
	if send := (*smithyhttp.RequestSendError)(nil); errors.As(err, &send) && send.Err != nil {
		return &briefError{send.Err.Error(), err}
	}
	if op := (*smithy.OperationError)(nil); errors.As(err, &op) && op.Err != nil {
		return &briefError{op.Err.Error(), err}
	}
	return err
}

// throttled reports whether DynamoDB refused because it has too much to do.
func throttled(err error) bool {
	api := smithy.APIError(nil)
	if unsent := (*unsentError)(nil); errors.As(err, &unsent) || !errors.As(err, &api) {
		return false
	}
	if cancelled := (*types.TransactionCanceledException)(nil); errors.As(err, &cancelled) {
		return slices.ContainsFunc(cancelled.CancellationReasons, func(reason types.CancellationReason) bool {
			code := aws.ToString(reason.Code)
			return code == "ThrottlingError" || code == "ProvisionedThroughputExceeded"
		})
	}
	switch api.ErrorCode() {
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "LimitExceededException":
		return true
	}
	return false
}

// throttlingReasons says what was throttled: the table, an index or the account,
// by its capacity or by the limit of one key range, such as
// "TableWriteKeyRangeThroughputExceeded of arn:...".
func throttlingReasons(err error) (told []string) {
	var reasons []types.ThrottlingReason
	if capacity := (*types.ProvisionedThroughputExceededException)(nil); errors.As(err, &capacity) {
		reasons = capacity.ThrottlingReasons
	}
	if rate := (*types.ThrottlingException)(nil); errors.As(err, &rate) {
		reasons = rate.ThrottlingReasons
	}
	if limit := (*types.RequestLimitExceeded)(nil); errors.As(err, &limit) {
		reasons = limit.ThrottlingReasons
	}
	for _, reason := range reasons {
		text := aws.ToString(reason.Reason)
		if resource := aws.ToString(reason.Resource); resource != "" {
			text += " of " + resource
		}
		told = append(told, text)
	}
	return told
}

// explain sorts an error. Codes are those of
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
// and of the common errors of AWS.
//
// An answer of 400 with a known code means that DynamoDB refused the request
// before it did anything; every other answer, or a missing one, leaves the
// outcome open.
func explain(err error) (meaning, string) {
	if cancelled := (*types.TransactionCanceledException)(nil); errors.As(err, &cancelled) {
		return explainCancelled(cancelled)
	}
	// Before the codes: the service that issues credentials has codes of its own.
	if unsent := (*unsentError)(nil); errors.As(err, &unsent) {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return notApplied, ""
		}
		if text := err.Error(); strings.Contains(text, "credential") || strings.Contains(text, "get identity") {
			// Not hopeless: the service that issues them may be unreachable for a while.
			return notApplied, "there are no credentials for AWS; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give the machine a role"
		}
		if strings.Contains(strings.ToLower(err.Error()), "region") {
			return hopeless, "the region is missing or wrong; set it in the client's configuration, or AWS_REGION, or region= in the URL"
		}
		return notApplied, "the request was not sent"
	}
	if api := smithy.APIError(nil); errors.As(err, &api) {
		status := 0
		if response := (*smithyhttp.ResponseError)(nil); errors.As(err, &response) {
			status = response.HTTPStatusCode()
		}
		return explainCode(api.ErrorCode(), api.ErrorMessage(), status)
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return notApplied, "the endpoint cannot be reached; check the region, the endpoint and the network"
	}
	if dns := (*net.DNSError)(nil); errors.As(err, &dns) {
		return notApplied, "the endpoint's name cannot be resolved; check the region, the endpoint and the network"
	}
	return unknown, ""
}

func explainCode(code, message string, status int) (meaning, string) {
	if status != 0 && status != http.StatusBadRequest {
		if status >= http.StatusInternalServerError {
			return unknown, "DynamoDB reports an internal error; try again"
		}
		return unknown, "unexpected answer; check that the endpoint is DynamoDB's"
	}
	switch code {
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "LimitExceededException":
		return notApplied, "throttled; if this goes on, raise the table's capacity, or make it on-demand"
	case "TransactionConflictException", "ReplicatedWriteConflictException":
		return notApplied, "another write of the item is under way; try again"
	case "ResourceNotFoundException":
		return hopeless, "there is no such table; check its name and the region, or create it with \"tenure table create\""
	case "ResourceInUseException", "TableInUseException":
		return notApplied, "the table is being created or changed; try again"
	case "AccessDeniedException", "AccessDenied", "UnauthorizedOperation", "NotAuthorized":
		return hopeless, "access is denied; \"tenure table policy\" prints the permissions that are needed"
	case "UnrecognizedClientException", "InvalidClientTokenId":
		// AWS says that it may be retried, and it occurs now and then with valid
		// credentials: https://github.com/boto/boto3/issues/509
		return notApplied, "the credentials are not valid here; check them, and the region"
	case "MissingAuthenticationToken", "MissingAuthenticationTokenException", "IncompleteSignature", "IncompleteSignatureException", "OptInRequired":
		return hopeless, "the credentials are not valid here; check them, and the region"
	case "ExpiredTokenException", "ExpiredToken":
		return notApplied, "the credentials have expired; renew them"
	case "InvalidSignatureException", "SignatureDoesNotMatch", "RequestExpired", "RequestTimeTooSkewed":
		if strings.Contains(message, "expired") || strings.Contains(message, "not yet current") || strings.HasPrefix(code, "Request") {
			return notApplied, "the clock of this machine is wrong; set it"
		}
		return hopeless, "the signature is wrong; check the secret access key"
	case "KMSAccessDeniedException", "KMSDisabledException", "KMSInvalidStateException", "KMSNotFoundException":
		return hopeless, "the table's KMS key is unusable; fix it in KMS"
	case "ItemCollectionSizeLimitExceededException":
		return notApplied, "the items of this partition key are too large for the table's local indexes"
	case "UnknownOperationException":
		return hopeless, "the endpoint does not know the operation; it is not DynamoDB, or an emulator that lacks it (SharedTable needs TransactWriteItems)"
	case "ValidationException", "SerializationException":
		return hopeless, explainValidation(message)
	}
	return unknown, ""
}

func explainValidation(message string) string {
	switch {
	case strings.Contains(message, "does not match the schema"), strings.Contains(message, "Type mismatch for key"),
		strings.Contains(message, "Missing the key"), strings.Contains(message, "number of conditions on the keys"):
		return "the table's keys differ from the options; set PartitionKey, and SortKey with SortValue, to the keys of the table"
	case strings.Contains(message, "size has exceeded"), strings.Contains(message, "size to update"):
		return "the item would be larger than the 400 kB that DynamoDB stores; make the data smaller"
	}
	return "DynamoDB refuses the request"
}

// explainCancelled sorts a transaction in which no condition failed.
func explainCancelled(cancelled *types.TransactionCanceledException) (meaning, string) {
	for _, reason := range cancelled.CancellationReasons {
		switch code := aws.ToString(reason.Code); code {
		case "", "None":
		case "TransactionConflict":
			return notApplied, "another write of the item is under way; try again"
		case "ThrottlingError", "ProvisionedThroughputExceeded":
			return explainCode("ThrottlingException", "", 0)
		case "ValidationError":
			return hopeless, explainValidation(aws.ToString(reason.Message))
		case "ItemCollectionSizeLimitExceeded":
			return explainCode("ItemCollectionSizeLimitExceededException", "", 0)
		}
	}
	return notApplied, "the transaction was cancelled; try again"
}
