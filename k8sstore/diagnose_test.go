// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package k8sstore

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
)

// diagnosed reports wanted findings of a namespace, for a user of the kubeconfig, that are
// missing.
func diagnosed(t *testing.T, kubeconfig, user, namespace string, o Options, want ...string) {
	t.Helper()
	config, _, err := Config(kubeconfig, user)
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(config, namespace, &o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	enginetest.Findings(t, s.Diagnose(t.Context(), driver.Timing{}), want...)
}

// Findings say what the rights allow, and which rights are missing.
func TestDiagnoseRights(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	namespace := enginetest.KubernetesNamespace(t, kubeconfig)
	diagnosed(t, kubeconfig, "admin", namespace, Options{}, `warn user: the API server takes the credentials for "admin", who may do everything`, `ok rights: "admin" can read and write Leases in namespace `+namespace, "ok encryption: the connection is encrypted;", " answers, version ")

	diagnosed(t, kubeconfig, "app", namespace, Options{}, `ok user: the API server takes the credentials for "app";`, `bad rights: "app" must not get Leases in namespace `+namespace, `bad rights: "app" must not create Leases`, `bad rights: "app" must not patch Leases`, `warn rights: "app" must not list Leases`, `warn rights: "app" must not watch Leases`, `warn rights: "app" must not delete Leases`, `warn rights: "app" must not get, list, create, delete ConfigMaps`)

	// Without ConfigMaps there are locks, but no long data.
	whole := Policy(namespace, "locks")
	begin, _, _ := strings.Cut(whole, "- apiGroups: [\"\"]\n")
	if begin == whole {
		t.Fatalf("no ConfigMaps in:\n%s", whole)
	}
	enginetest.GrantInKubernetes(t, kubeconfig, namespace, "locks", begin)
	diagnosed(t, kubeconfig, "app", namespace, Options{}, `ok rights: "app" can read and write Leases`, `warn rights: "app" must not get, list, create, delete ConfigMaps in namespace `+namespace+": data of more than 4 kB are refused; grant what tenure table policy prints")
}

// Findings name the locks of electors if locks are shared.
func TestDiagnoseElectors(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	namespace := enginetest.KubernetesNamespace(t, kubeconfig)
	diagnosed(t, kubeconfig, "admin", namespace, Options{SharedLease: true}, "ok electors: 0 locks, none of them last written by another client; shared=true is for a time")

	for name, holder := range map[string]string{"controller": "pod-7", "scheduler": ""} {
		enginetest.CreateInKubernetes(t, kubeconfig, "/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases", fmt.Sprintf(`{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": %q},
			"spec": {"holderIdentity": %q, "leaseDurationSeconds": 15, "leaseTransitions": 0}}`, name, holder))
	}
	diagnosed(t, kubeconfig, "admin", namespace, Options{SharedLease: true}, `ok electors: 2 locks, 2 of them last written by another client, such as an elector of client-go; it holds 1, such as "controller", held by "pod-7"; an elector cannot be asked to step down`)
	diagnosed(t, kubeconfig, "admin", namespace, Options{}, "!electors", "!shared")
}

// At the address may be another program, or a server that reports little.
func TestAPIServerAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		level  driver.Level
		says   string // "": there was no answer to go by
	}{
		{http.StatusOK, `{"gitVersion": "v1.36.2"}`, driver.LevelOK, "answers, version 1.36.2"},
		{http.StatusForbidden, `{"message": "no"}`, driver.LevelOK, "does not report its version"},
		{http.StatusUnauthorized, `{"message": "no"}`, "", ""},
		{http.StatusOK, `<html>`, "", ""},
		{http.StatusNotFound, `<html>`, driver.LevelWarn, "answers: the server could not find the requested resource"},
		{http.StatusInternalServerError, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500, "message": "etcd is away"}`, driver.LevelWarn, "answers: etcd is away"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		s, err := New(&rest.Config{Host: strings.Replace(server.URL, "://", "://user:sesame@", 1)}, "jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		f, ok := s.version(t.Context())
		if ok != (c.says != "") || ok && (f.Level != c.level || !strings.Contains(f.Finding, c.says)) || strings.Contains(fmt.Sprint(f), "sesame") {
			t.Errorf("%d %s: %v, %t", c.status, c.body, f, ok)
		}
		_ = s.Close() // it returns nil
		server.Close()
	}
}

func TestAPIServerEncryption(t *testing.T) {
	for _, c := range []struct {
		host     string
		insecure bool
		level    driver.Level
		says     string
	}{
		{"https://10.0.0.1:6443", false, driver.LevelOK, "the connection is encrypted"},
		{"https://10.0.0.1:6443", true, driver.LevelWarn, "certificate is not checked"},
		{"https://127.0.0.1:6443", true, driver.LevelOK, "the connection is encrypted"},
		{"http://10.0.0.1:8080", false, driver.LevelWarn, "not encrypted"},
		{"http://localhost:8080", false, driver.LevelOK, "does not leave this machine"},
		{"http://[::1]:8080", false, driver.LevelOK, "does not leave this machine"},
	} {
		s, err := New(&rest.Config{Host: c.host, TLSClientConfig: rest.TLSClientConfig{Insecure: c.insecure}}, "jobs", nil)
		if err != nil {
			t.Fatal(err)
		}
		if f := s.encryption(); f.Level != c.level || !strings.Contains(f.Finding, c.says) {
			t.Errorf("%s, insecure %v: %v", c.host, c.insecure, f)
		}
	}
}

// Each verb that a store needs is judged.
func TestVerbsAreJudged(t *testing.T) {
	for _, r := range Rights() {
		for _, verb := range r.Verbs {
			all := rights("jobs", "", map[string][]string{r.Resource: {verb}})
			if text := fmt.Sprint(all); !strings.Contains(text, "the credentials must not "+verb+" ") {
				t.Errorf("without %s of %s: %s", verb, r.Resource, text)
			}
		}
	}
	if all := rights("jobs", "app", nil); len(all) != 1 || all[0].Level != driver.LevelOK {
		t.Errorf("with all rights: %v", all)
	}
}
