// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
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
	_, err := askKubernetes(addr, "admin", "/readyz", "")
	return err
}

// askKubernetes makes a request as a user, a POST if there is something to send, and
// returns the answer.
func askKubernetes(addr, user, path, body string) (string, error) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is a server of this machine, and of the tests
	defer transport.CloseIdleConnections()
	client := http.Client{Timeout: 5 * time.Second, Transport: transport}
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	request, err := http.NewRequest(method, "https://"+addr+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Authorization", "Bearer "+user)
	request.Header.Set("Content-Type", "application/yaml") // JSON is some
	request.Header.Set("Accept", "application/json, */*")
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %s: %s", path, answer.Status, text)
	}
	return string(text), err
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

// TryInKubernetes makes an object, in YAML, at a path of the API server whose kubeconfig
// is as that of [Kubernetes], and returns it as the server has it, in JSON.
func TryInKubernetes(t testing.TB, kubeconfig, path, object string) (string, error) {
	t.Helper()
	return askKubernetes(addrInKubeconfig(t, kubeconfig), "admin", path, object)
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
	CreateInKubernetes(t, kubeconfig, "/api/v1/namespaces", `{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "`+name+`"}}`)
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
	var is struct{ Status struct{ Allowed bool } }
	addr := addrInKubeconfig(t, kubeconfig)
	for end := time.Now().Add(enginePatience); !is.Status.Allowed && time.Now().Before(end); <-time.After(10 * time.Millisecond) {
		text, err := askKubernetes(addr, token, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": {"resourceAttributes": {"namespace": "`+namespace+`", "verb": "get", "group": "coordination.k8s.io", "resource": "leases"}}}`)
		if err == nil {
			err = json.Unmarshal([]byte(text), &is)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if !is.Status.Allowed {
		t.Fatalf("there are no rights in namespace %s after %v", namespace, enginePatience)
	}
}
