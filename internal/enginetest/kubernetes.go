// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest/launcher"
)

// Kubernetes is the variable that names the kubeconfig of an API server. Its contexts are
// "admin", who may do everything, and "app", who has no rights.
const Kubernetes = "TENURE_TEST_KUBERNETES"

// KubernetesServer is an API server, with its etcd, that a test has for itself.
type KubernetesServer struct {
	*Engine
	Etcd *Engine
	// Kubeconfig is a file like that of [Kubernetes].
	Kubeconfig string
}

// StartKubernetes starts an API server with an etcd, and waits until it is ready.
func StartKubernetes(t testing.TB) *KubernetesServer {
	t.Helper()
	Program(t, "kubernetes", "kube-apiserver") // or there is no use for an etcd
	k := &KubernetesServer{Etcd: StartEtcd(t, 1, "--unsafe-no-fsync")[0]}
	return k.Beside(t)
}

// Beside starts another API server on the same etcd, and waits until it is ready.
func (k *KubernetesServer) Beside(t testing.TB) *KubernetesServer {
	t.Helper()
	dir := t.TempDir()
	server, err := launcher.Kubernetes(dir, FreePort(t), k.Etcd.URL)
	need(t, err)
	other := &KubernetesServer{Engine: newEngine(t, server), Etcd: k.Etcd, Kubeconfig: filepath.Join(dir, "kubeconfig")}
	other.Start()
	other.Await()
	return other
}

var serverInKubeconfig = regexp.MustCompile(`https://([^"/]+)`)

// addrInKubeconfig returns where the server of a kubeconfig listens.
func addrInKubeconfig(t testing.TB, kubeconfig string) string {
	t.Helper()
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	found := serverInKubeconfig.FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s names no server", kubeconfig)
	}
	return string(found[1])
}

// TryInKubernetes makes an object, in YAML, at a path of the API server with a
// kubeconfig like that of [Kubernetes], and returns the server's object, in JSON.
func TryInKubernetes(t testing.TB, kubeconfig, path, object string) (string, error) {
	t.Helper()
	return launcher.AskKubernetes(addrInKubeconfig(t, kubeconfig), "admin", path, object)
}

// CreateInKubernetes makes an object as TryInKubernetes does, and must.
func CreateInKubernetes(t testing.TB, kubeconfig, path, object string) string {
	t.Helper()
	made, err := TryInKubernetes(t, kubeconfig, path, object)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// namespaces counts those of this process, for their names.
var namespaces atomic.Uint64

// KubernetesNamespace makes a namespace, and returns its name.
func KubernetesNamespace(t testing.TB, kubeconfig string) string {
	t.Helper()
	name := fmt.Sprintf("test-%d-%d", os.Getpid(), namespaces.Add(1))
	CreateInKubernetes(t, kubeconfig, "/api/v1/namespaces",
		`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+name+`"}}`)
	return name
}

// GrantInKubernetes gives the user "app" a Role, which is in YAML and has the name, and
// waits until it may get Leases.
func GrantInKubernetes(t testing.TB, kubeconfig, namespace, name, role string) {
	t.Helper()
	path := "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace
	CreateInKubernetes(t, kubeconfig, path+"/roles", role)
	CreateInKubernetes(t, kubeconfig, path+"/rolebindings", `{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "`+name+`"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "`+name+`"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "app"}]}`)
	AwaitInKubernetes(t, kubeconfig, "app", namespace)
}

// AwaitInKubernetes waits until the user with that token may get Leases.
func AwaitInKubernetes(t testing.TB, kubeconfig, token, namespace string) {
	t.Helper()
	const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	addr := addrInKubeconfig(t, kubeconfig)
	Eventually(t, "rights in the namespace "+namespace, func(context.Context) error {
		text, err := launcher.AskKubernetes(addr, token, path, `{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {
			"namespace": "`+namespace+`", "verb": "get", "group": "coordination.k8s.io", "resource": "leases"}}}`)
		var is struct{ Status struct{ Allowed bool } }
		if err == nil {
			err = json.Unmarshal([]byte(text), &is)
		}
		if err == nil && !is.Status.Allowed {
			err = errors.New("they are not there")
		}
		return err
	})
}
