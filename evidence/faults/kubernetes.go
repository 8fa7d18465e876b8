// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"strconv"
	"sync"

	coordination "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/evidence/bed/gate"
	"github.com/tenurelock/tenure/evidence/bed/must"
	"github.com/tenurelock/tenure/k8sstore"
)

// prepareKubernetes makes a namespace on an API server. Gates know the writes of a store by
// their bytes, so they are spoken to without TLS, and what they let through goes to a bridge,
// which speaks to the server by TLS, as the user of the kubeconfig.
func (p *place) prepareKubernetes(ctx context.Context, s *scene) {
	config, _, err := k8sstore.Config(s.engines[kubernetes], "")
	must.Do(err)
	target := must.Have(url.Parse(config.Host))
	namespace := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.table}}
	client := must.Have(clientset.NewForConfig(config))
	must.Have(client.CoreV1().Namespaces().Create(ctx, &namespace, metav1.CreateOptions{}))
	bridge := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     must.Have(rest.TransportFor(config)),
		FlushInterval: -1, // a watch tells at once
		// Of processes that were killed in the middle of a request.
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	})
	s.after(func() {
		bridge.CloseClientConnections()
		bridge.Close()
	})
	p.direct = bridge.Listener.Addr().String()
	p.reached = func(address string) string {
		return s.file("kubeconfig-", `apiVersion: v1
kind: Config
clusters: [{name: gate, cluster: {server: "http://`+address+`"}}]
contexts: [{name: gate, context: {cluster: gate}}]
current-context: gate
`)
	}
}

// leaseAPI is the part of a Kubernetes API server that client-go's lease lock
// talks to: leases of coordination.k8s.io/v1, with the same check of the resource
// version. An update that names another version than the stored one is a conflict.
type leaseAPI struct {
	mu      sync.Mutex
	version int64
	leases  map[string]coordination.Lease // by name
}

// onLeaseAPI is the place of client-go.
func onLeaseAPI(context.Context, *scene) *place {
	api := &leaseAPI{leases: map[string]coordination.Lease{}}
	return &place{
		gate: func(string) (gate.Gate, error) {
			return gate.NewHTTP(api, func(r *http.Request) bool { return r.Method != http.MethodGet }), nil
		},
		forget: func(_ context.Context, lock string) error {
			api.mu.Lock()
			defer api.mu.Unlock()
			delete(api.leases, lock)
			return nil
		},
	}
}

func (a *leaseAPI) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	lease, err := a.act(r)
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

func (a *leaseAPI) act(r *http.Request) (*coordination.Lease, *errors.StatusError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	resource := coordination.Resource("leases")
	var sent coordination.Lease
	name := path.Base(r.URL.Path)
	if r.Method != http.MethodGet {
		if err := json.NewDecoder(r.Body).Decode(&sent); err != nil {
			return nil, errors.NewBadRequest(err.Error())
		}
		name = sent.Name
	}
	stored, found := a.leases[name]
	switch {
	case r.Method == http.MethodPost && found:
		return nil, errors.NewAlreadyExists(resource, name)
	case r.Method != http.MethodPost && !found:
		return nil, errors.NewNotFound(resource, name)
	case r.Method == http.MethodGet:
		return &stored, nil
	case found && sent.ResourceVersion != "" && sent.ResourceVersion != stored.ResourceVersion:
		return nil, errors.NewConflict(resource, name, nil)
	}
	a.version++
	sent.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
	sent.Namespace, sent.ResourceVersion = namespace, strconv.FormatInt(a.version, 10)
	a.leases[name] = sent
	return &sent, nil
}
