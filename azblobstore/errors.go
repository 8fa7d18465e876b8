// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package azblobstore

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/tenurelock/tenure/driver/objectmap"
)

func (o *objects) place() string { return fmt.Sprintf("container %q of %s", o.container, o.host) }

// answerOf returns an answer of the server, nil if there was none: an answer of another host
// comes from the service that issues tokens.
func (o *objects) answerOf(err error) *azcore.ResponseError {
	unsent, answer := (*unsentError)(nil), (*azcore.ResponseError)(nil)
	if errors.As(err, &unsent) || !errors.As(err, &answer) {
		return nil
	}
	if raw := answer.RawResponse; raw != nil && raw.Request != nil && raw.Request.URL.Host != o.host {
		return nil
	}
	return answer
}

// codeOf returns the code of an error that the server has answered, "" if it has not.
func (o *objects) codeOf(err error) bloberror.Code {
	if answer := o.answerOf(err); answer != nil {
		return bloberror.Code(answer.ErrorCode)
	}
	return ""
}

// statusOf returns the status of an answer, 0 if there was none.
func (o *objects) statusOf(err error) int {
	if answer := o.answerOf(err); answer != nil {
		return answer.StatusCode
	}
	return 0
}

// writeFault is fault for a write. A condition that did not hold is an error of package
// objectmap, which says for certain that nothing was written. Other conflicts are not, nor is
// a blob under a lease of Azure, whose status is the same.
func (o *objects) writeFault(ctx context.Context, err error, match bool) error {
	missed := false
	switch status, code := o.statusOf(err), o.codeOf(err); status {
	case http.StatusPreconditionFailed:
		missed = code == bloberror.ConditionNotMet || code == bloberror.TargetConditionNotMet || code == ""
	case http.StatusConflict:
		missed = code == bloberror.BlobAlreadyExists && !match
	case http.StatusNotFound:
		missed = code == bloberror.BlobNotFound && match
	}
	if missed {
		return fmt.Errorf("%w: %w", objectmap.ErrMismatch, o.brief(err))
	}
	return o.fault(ctx, err)
}

// fault says what an error of the server or on the way to it means, and what to do about it,
// and marks it so.
func (o *objects) fault(ctx context.Context, err error) error {
	means, advice := o.explain(err)
	return means.Fault(ctx, o.place(), advice, o.brief(err))
}

const (
	unknown    = objectmap.Unknown
	slow       = objectmap.Slow
	notApplied = objectmap.NotApplied
	hopeless   = objectmap.Hopeless
)

const (
	denied    = `access is denied; give the identity the role "Storage Blob Data Contributor" on the container, or take a SAS with the rights rcwdl`
	badKey    = "the credential is refused; check the account and its key, or the SAS and its expiry"
	tooOld    = "the credential has expired, or the clock of this machine is wrong; renew the credential, or set the clock"
	protocol  = "the server lacks what Tenure needs: Put Blob with If-Match and If-None-Match, in the version of the protocol that the SDK speaks"
	immutable = "a policy makes blobs immutable; keep locks in a container without one"
	archived  = "the blob was moved to the archive; exclude the prefix from the rule that did it, and move the blob back"
	leased    = "another client holds an Azure lease on the blob; break that lease"
)

// codes are the meanings of answers by code:
// https://learn.microsoft.com/rest/api/storageservices/blob-service-error-codes. Any other
// code leaves the outcome open.
var codes = map[bloberror.Code]struct {
	means  objectmap.Meaning
	advice string
}{
	bloberror.ContainerNotFound:               {hopeless, "there is no such container; check its name and the account"},
	bloberror.ContainerBeingDeleted:           {notApplied, "the container is being deleted"},
	bloberror.ContainerDisabled:               {hopeless, "the container is disabled"},
	bloberror.ResourceNotFound:                {hopeless, "there is no such container, or the client has no credential; check both"},
	bloberror.InvalidResourceName:             {hopeless, "the container's name is not valid"},
	bloberror.AccountIsDisabled:               {hopeless, "the account is disabled"},
	bloberror.AuthorizationFailure:            {hopeless, denied + "; or let this machine through the account's firewall"},
	bloberror.AuthorizationPermissionMismatch: {hopeless, denied},
	bloberror.AuthorizationProtocolMismatch:   {hopeless, "the SAS is for https only"},
	bloberror.AuthorizationSourceIPMismatch:   {hopeless, "the SAS is not for this machine's address"},
	bloberror.InsufficientAccountPermissions:  {hopeless, denied},
	bloberror.AuthenticationFailed:            {hopeless, badKey},
	bloberror.InvalidAuthenticationInfo:       {hopeless, badKey},
	bloberror.NoAuthenticationInformation:     {hopeless, "the client has no credential, and the container is not open to all"},
	bloberror.BlobImmutableDueToPolicy:        {hopeless, immutable},
	bloberror.UnauthorizedBlobOverwrite:       {hopeless, denied},
	bloberror.BlobArchived:                    {hopeless, archived},
	bloberror.BlobBeingRehydrated:             {notApplied, "the blob is being restored from the archive"},
	bloberror.InvalidBlobType:                 {hopeless, "the blob is not a block blob, so Tenure did not write it"},
	bloberror.SnapshotsPresent:                {notApplied, "the blob has snapshots; delete them, and make none below the prefix"},
	bloberror.LeaseIDMissing:                  {notApplied, leased},
	bloberror.UnsupportedHeader:               {hopeless, protocol},
	bloberror.InvalidHeaderValue:              {hopeless, protocol},
	bloberror.ConditionHeadersNotSupported:    {hopeless, protocol},
	bloberror.RequestBodyTooLarge:             {hopeless, "the record is too large for the server"},
	bloberror.ServerBusy:                      {slow, "throttled"},
	bloberror.OperationTimedOut:               {unknown, "the server reports an internal error; try again"},
}

// explain sorts an error.
func (o *objects) explain(err error) (objectmap.Meaning, string) {
	if unsent := (*unsentError)(nil); errors.As(err, &unsent) {
		return notApplied, whyUnsent(err)
	}
	status, code := o.statusOf(err), o.codeOf(err)
	if known, ok := codes[code]; ok {
		if known.advice == badKey && ended(err) {
			return notApplied, tooOld
		}
		return known.means, known.advice
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return hopeless, denied
	case status == http.StatusNotImplemented:
		return hopeless, protocol
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return slow, "throttled"
	case status >= http.StatusInternalServerError:
		return unknown, "the server reports an internal error; try again"
	case status != 0:
		return unknown, "unexpected answer; check that the client's URL is of a container of Azure Blob Storage"
	}
	return unknown, ""
}

// ended reports whether a credential is refused because of its time: Azure has one code
// for all problems of a credential, and distinguishes them by texts.
func ended(err error) bool {
	for _, text := range []string{"date header too old", "not valid in the specified time frame", "Lifetime validation failed"} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// whyUnsent says what to do about a request that was not sent.
func whyUnsent(err error) string {
	dial, dns, web := (*net.OpError)(nil), (*net.DNSError)(nil), (*url.Error)(nil)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return ""
	case errors.As(err, &dns):
		return "the account's name cannot be resolved; check it and the network"
	case errors.As(err, &dial), errors.As(err, &web):
		return "the account cannot be reached; check its name and the network"
	}
	return "the request was not sent; check the client's credential"
}

// brief returns the error with a short text. The text of the SDK has several lines, and ids of
// the request; the text of net/http has the URL with its signature.
func (o *objects) brief(err error) error {
	if answer := o.answerOf(err); answer != nil {
		text := answer.ErrorCode
		if text == "" {
			text = "status " + fmt.Sprint(answer.StatusCode)
		}
		if more := message(answer); more != "" {
			text += ": " + more
		}
		return objectmap.Brief(text, err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return objectmap.Brief("no answer in time", err)
	}
	if web := (*url.Error)(nil); errors.As(err, &web) {
		return objectmap.Brief(web.Err.Error(), err)
	}
	return err
}

// message returns the first line of what an answer says of itself.
func message(answer *azcore.ResponseError) string {
	var says struct {
		Message                   string
		AuthenticationErrorDetail string
	}
	if answer.RawResponse == nil || answer.RawResponse.Body == nil {
		return ""
	}
	text, err := runtime.Payload(answer.RawResponse)
	if err != nil || xml.Unmarshal(text, &says) != nil {
		return ""
	}
	if says.AuthenticationErrorDetail != "" {
		return says.AuthenticationErrorDetail
	}
	first, _, _ := strings.Cut(says.Message, "\n")
	return first
}
