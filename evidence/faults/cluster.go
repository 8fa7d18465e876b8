// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/k8sstore"
)

// kubernetesEnv names the kubeconfig of an API server whose user has a token, and may make
// namespaces.
const kubernetesEnv = "TENURE_TEST_KUBERNETES"

// cluster is a real API server. Gates know the writes of a store by their bytes, so they are
// spoken to without TLS, and what they let through goes to a bridge, which speaks to the server
// by TLS. It adds the token as well: without TLS a kubeconfig's is not sent.
type cluster struct {
	client *kubernetes.Clientset
	bridge *httptest.Server
	way    *http.Transport // from the bridge to the server
}

func newCluster(kubeconfig string) (*cluster, error) {
	config, _, err := k8sstore.Config(kubeconfig, "")
	if err != nil {
		return nil, err
	}
	if config.BearerToken == "" {
		return nil, fmt.Errorf("faults: the user of %s has no token: use the kubeconfig of scripts/engines run kubernetes", kubeconfig)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	encrypted, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	// A connection to the server for each of the store's requests under way.
	way := &http.Transport{TLSClientConfig: encrypted, MaxIdleConnsPerHost: 256}
	bridge := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+config.BearerToken)
		},
		Transport:     way,
		FlushInterval: -1, // a watch tells at once
		// Of processes that were killed in the middle of a request.
		ErrorHandler: func(rw http.ResponseWriter, _ *http.Request, _ error) { rw.WriteHeader(http.StatusBadGateway) },
	})
	return &cluster{client, bridge, way}, nil
}

// address is that of the bridge, as host and port.
func (c *cluster) address() string { return c.bridge.Listener.Addr().String() }

// kubeconfig writes a file that leads to an address of the bridge, or of a gate in front of
// it, and returns its name.
func (c *cluster) kubeconfig(dir, address string) (string, error) {
	file, err := os.CreateTemp(dir, "kubeconfig-")
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(file, `apiVersion: v1
kind: Config
clusters: [{name: gate, cluster: {server: "http://%s"}}]
users: [{name: user}]
contexts: [{name: gate, context: {cluster: gate, user: user}}]
current-context: gate
`, address)
	return file.Name(), errors.Join(err, file.Close())
}

// namespace makes one.
func (c *cluster) namespace(ctx context.Context, name string) error {
	_, err := c.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

// version is the server's.
func (c *cluster) version() (string, error) {
	v, err := c.client.Discovery().ServerVersion()
	if err != nil {
		return "", err
	}
	if v.GitVersion == "" {
		return "", errors.New("faults: the API server does not tell its version")
	}
	return strings.TrimPrefix(v.GitVersion, "v"), nil
}

// close ends the bridge, and all that it carries.
func (c *cluster) close() {
	c.bridge.CloseClientConnections()
	c.bridge.Close()
	c.way.CloseIdleConnections()
}
