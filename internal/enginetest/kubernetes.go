// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Kubernetes is the variable that names the kubeconfig of an API server. Its contexts are
// "admin", who may do everything, and "app", who has no rights.
const Kubernetes = "TENURE_TEST_KUBERNETES"

// KubernetesServer is an API server, with its etcd, that a test has for itself.
type KubernetesServer struct {
	*Engine
	Etcd *EtcdMember
	// Kubeconfig is a file as that of [Kubernetes], and Addr where the server listens:
	// host and port.
	Kubeconfig, Addr string
}

// StartKubernetes starts an API server with an etcd, and waits until it is ready.
func StartKubernetes(t testing.TB) *KubernetesServer {
	t.Helper()
	Program(t, "kubernetes", kubernetesProgram) // or there is no use for an etcd
	k := &KubernetesServer{Etcd: StartEtcd(t, 1, "--unsafe-no-fsync")[0]}
	return k.Beside(t)
}

const kubernetesProgram = "kubernetes-*/kube-apiserver"

// Beside starts another API server on the same etcd, and waits until it is ready.
func (k *KubernetesServer) Beside(t testing.TB) *KubernetesServer {
	t.Helper()
	dir, port := t.TempDir(), strconv.Itoa(FreePort(t))
	other := &KubernetesServer{Etcd: k.Etcd, Kubeconfig: filepath.Join(dir, "kubeconfig"), Addr: "127.0.0.1:" + port}
	args := []string{Program(t, "kubernetes", kubernetesProgram), dir, port, k.Etcd.URL}
	other.Engine = NewEngine(t, args, nil, func() error { return kubernetesReady(other.Addr) })
	other.Start()
	other.Await()
	return other
}

// kubernetesReady says that an API server serves.
func kubernetesReady(addr string) error {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is asked for nothing else
	defer transport.CloseIdleConnections()
	client := http.Client{Timeout: 5 * time.Second, Transport: transport}
	request, err := http.NewRequest(http.MethodGet, "https://"+addr+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer admin")
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("it is not ready: %s", answer.Status)
	}
	return err
}
