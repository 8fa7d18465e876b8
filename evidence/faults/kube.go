// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"

	coordination "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// leaseAPI is the part of a Kubernetes API server that client-go's lease lock
// talks to: leases of coordination.k8s.io/v1, with the same check of the resource
// version. An update that names another version than the stored one is a conflict.
type leaseAPI struct {
	mu      sync.Mutex
	version int64
	leases  map[string]coordination.Lease // by namespace and name
}

func newLeaseAPI() *leaseAPI { return &leaseAPI{leases: map[string]coordination.Lease{}} }

var leaseResource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// leaseWrite tells a gate what a write is.
func leaseWrite(r *http.Request) bool {
	return r.Method == http.MethodPut || r.Method == http.MethodPost
}

func (a *leaseAPI) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	path, found := strings.CutPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/")
	parts := strings.Split(path, "/")
	if !found || len(parts) < 2 || parts[1] != "leases" {
		http.NotFound(rw, r)
		return
	}
	name := ""
	if len(parts) == 3 {
		name = parts[2]
	}
	lease, err := a.act(r, parts[0], name)
	code, body := http.StatusOK, any(lease)
	switch {
	case err != nil:
		code, body = int(err.ErrStatus.Code), err.ErrStatus
	case r.Method == http.MethodPost:
		code = http.StatusCreated
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_ = json.NewEncoder(rw).Encode(body) // the client may be gone
}

func (a *leaseAPI) act(r *http.Request, namespace, name string) (*coordination.Lease, *errors.StatusError) {
	var sent coordination.Lease
	if leaseWrite(r) {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			return nil, errors.NewBadRequest(err.Error())
		}
		name = sent.Name
	}
	key := namespace + "/" + name
	a.mu.Lock()
	defer a.mu.Unlock()
	stored, found := a.leases[key]
	switch r.Method {
	case http.MethodGet:
		if !found {
			return nil, errors.NewNotFound(leaseResource, name)
		}
		return &stored, nil
	case http.MethodPost:
		if found {
			return nil, errors.NewAlreadyExists(leaseResource, name)
		}
	case http.MethodPut:
		if !found {
			return nil, errors.NewNotFound(leaseResource, name)
		}
		if sent.ResourceVersion != "" && sent.ResourceVersion != stored.ResourceVersion {
			return nil, errors.NewConflict(leaseResource, name, fmt.Errorf("the object has been modified: version %s is stored, not %s", stored.ResourceVersion, sent.ResourceVersion))
		}
	default:
		return nil, errors.NewMethodNotSupported(leaseResource, r.Method)
	}
	a.version++
	sent.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	sent.Namespace, sent.ResourceVersion = namespace, strconv.FormatInt(a.version, 10)
	a.leases[key] = sent
	return &sent, nil
}

// forget deletes a lease, as kubectl does it.
func (a *leaseAPI) forget(namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.leases, namespace+"/"+name)
}
