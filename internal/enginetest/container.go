// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"encoding/xml"
	"net/http"
	"testing"
)

// What a client needs of a server of Azure's protocol that a test has for itself. They are
// those of the emulators, which their makers publish.
const (
	AzureAccount = "devstoreaccount1"
	AzureKey     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

var azureDialect = dialect{
	root:          AzureAccount + "/",
	exists:        refusal{http.StatusConflict, "BlobAlreadyExists"},
	mismatch:      refusal{http.StatusPreconditionFailed, "ConditionNotMet"},
	absentOnMatch: refusal{http.StatusPreconditionFailed, "ConditionNotMet"},
	absent:        refusal{http.StatusNotFound, "BlobNotFound"},
	busy:          refusal{http.StatusServiceUnavailable, "ServerBusy"},
	noBucket:      refusal{http.StatusNotFound, "ContainerNotFound"},
	denied:        refusal{http.StatusForbidden, "AuthorizationPermissionMismatch"},
	failed:        refusal{http.StatusInternalServerError, "InternalError"},
	codeHeader:    "X-Ms-Error-Code",
	written:       http.StatusCreated,
	deleted:       http.StatusAccepted,
	serialTags:    true,
	serveBucket:   (*Bucket).serveContainer,
}

// NewContainer is NewBucket for the protocol of Azure Blob Storage. Tags are new with each
// write, and the path begins with the account.
func NewContainer(t testing.TB) *Bucket {
	t.Helper()
	return newBucket(t, azureDialect)
}

// serveContainer answers a list, in which there is a folder, as in an account that has such.
func (b *Bucket) serveContainer(w http.ResponseWriter, r *http.Request) {
	type properties struct {
		ResourceType string `xml:",omitempty"`
	}
	type blob struct {
		Name       string
		Properties properties
	}
	var out struct {
		XMLName    xml.Name `xml:"EnumerationResults"`
		Blobs      []blob   `xml:"Blobs>Blob"`
		NextMarker string
	}
	prefix := r.URL.Query().Get("prefix")
	names, next := b.page(prefix, r.URL.Query().Get("marker"))
	for _, name := range names {
		out.Blobs = append(out.Blobs, blob{Name: name})
	}
	out.Blobs = append(out.Blobs, blob{prefix + ".folder", properties{"directory"}})
	out.NextMarker = next
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(out) // the client may have gone
}
