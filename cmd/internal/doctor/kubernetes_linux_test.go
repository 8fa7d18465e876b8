// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tenurelock/tenure"
	"github.com/tenurelock/tenure/driver"
	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/k8sstore"
)

// examineKubernetes returns what the doctor says of a namespace, to a user of the
// kubeconfig.
func examineKubernetes(t *testing.T, kubeconfig, user, namespace string, o k8sstore.Options) (lines string, bad bool, err error) {
	t.Helper()
	configOf := func() (*rest.Config, string, error) {
		config, _, err := k8sstore.Config(kubeconfig, user)
		return config, namespace, err
	}
	return examine(t, Patient{
		Engine: Kubernetes{Options: o, Config: configOf},
		Open: func() (driver.Store, error) {
			config, namespace, err := configOf()
			if err != nil {
				return nil, err
			}
			s, err := k8sstore.Open(t.Context(), config, namespace, &o)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Options: options(t, tenure.Options{}),
	})
}

// What the rights let a store do is told, and which are missing.
func TestKubernetesRights(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	namespace := enginetest.KubernetesNamespace(t, kubeconfig)
	lines, bad, err := examineKubernetes(t, kubeconfig, "admin", namespace, k8sstore.Options{})
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, `warn user: the API server takes the credentials for "admin", who may do everything`, `ok rights: "admin" can read and write Leases in namespace `+namespace, "ok encryption: the connection is encrypted;", " answers, version ", "ok watch: a waiter hears")

	lines, bad, err = examineKubernetes(t, kubeconfig, "app", namespace, k8sstore.Options{})
	if !bad || err == nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, `ok user: the API server takes the credentials for "app";`, `bad rights: "app" must not get Leases in namespace `+namespace, `bad rights: "app" must not create Leases`, `bad rights: "app" must not patch Leases`, `warn rights: "app" must not list Leases`, `warn rights: "app" must not watch Leases`, `warn rights: "app" must not delete Leases`, `warn rights: "app" must not get, list, create, delete ConfigMaps`, "bad store: cannot be opened")

	// Without ConfigMaps there are locks, but no long data.
	whole := k8sstore.Policy(namespace, "locks")
	begin, _, _ := strings.Cut(whole, "- apiGroups: [\"\"]\n")
	if begin == whole {
		t.Fatalf("no ConfigMaps in:\n%s", whole)
	}
	enginetest.GrantInKubernetes(t, kubeconfig, namespace, "locks", begin)
	lines, bad, err = examineKubernetes(t, kubeconfig, "app", namespace, k8sstore.Options{})
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, `ok rights: "app" can read and write Leases`, `warn rights: "app" must not get, list, create, delete ConfigMaps in namespace `+namespace+": data of more than 4 kB are refused; grant what tenure table policy prints", "ok store: can be read and written")
}

// Locks that an elector has are told where they are shared.
func TestKubernetesElectors(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	namespace := enginetest.KubernetesNamespace(t, kubeconfig)
	lines, _, _ := examineKubernetes(t, kubeconfig, "admin", namespace, k8sstore.Options{SharedLease: true})
	wantLines(t, lines, "ok electors: 0 locks, and none that was last written by another client; shared=true is for a time")

	for name, holder := range map[string]string{"controller": "pod-7", "scheduler": ""} {
		enginetest.CreateInKubernetes(t, kubeconfig, "/apis/coordination.k8s.io/v1/namespaces/"+namespace+"/leases", fmt.Sprintf(`{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": %q},
			"spec": {"holderIdentity": %q, "leaseDurationSeconds": 15, "leaseTransitions": 0}}`, name, holder))
	}
	lines, bad, err := examineKubernetes(t, kubeconfig, "admin", namespace, k8sstore.Options{SharedLease: true})
	if bad || err != nil {
		t.Errorf("bad %v, %v:\n%s", bad, err, lines)
	}
	wantLines(t, lines, `ok electors: 2 locks, 2 of them last written by another client, such as an elector of client-go; it holds 1, such as "controller", which "pod-7" has; an elector cannot be asked to step down`)
	lines, _, _ = examineKubernetes(t, kubeconfig, "admin", namespace, k8sstore.Options{})
	if strings.Contains(lines, "electors") || strings.Contains(lines, "shared") {
		t.Errorf("electors' Leases where nothing is shared:\n%s", lines)
	}
}

// What stands at the address may be another program, or say little.
func TestAPIServerAnswers(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		level  Level
		says   string // "": there was no answer to go by
	}{
		{http.StatusOK, `{"gitVersion": "v1.36.2"}`, OK, "answers, version 1.36.2"},
		{http.StatusForbidden, `{"message": "no"}`, OK, "does not say its version"},
		{http.StatusUnauthorized, `{"message": "no"}`, "", ""},
		{http.StatusOK, `<html>`, "", ""},
		{http.StatusNotFound, `<html>`, Warn, "answers: 404 Not Found"},
		{http.StatusInternalServerError, `{"message": "etcd is away"}`, Warn, "answers: etcd is away"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(c.status)
			_, _ = w.Write([]byte(c.body))
		}))
		a, err := newAPIServer(&rest.Config{Host: strings.Replace(server.URL, "://", "://user:sesame@", 1)})
		if err != nil {
			t.Fatal(err)
		}
		f, err := a.version(t.Context())
		if (err == nil) != (c.says != "") || err == nil && (f.Level != c.level || !strings.Contains(f.Finding, c.says)) || strings.Contains(fmt.Sprint(f, err), "sesame") {
			t.Errorf("%d %s: %v, %v", c.status, c.body, f, err)
		}
		server.Close()
	}
}

// TestAPIServerPluginHangs: the doctor waits for no plugin for longer than it may take.
func TestAPIServerPluginHangs(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "plugin") // it ends when its file is removed
	if err := os.WriteFile(plugin, []byte("#!/bin/sh\nwhile test -e \"$0\"; do sleep 0.02; done\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	a, err := newAPIServer(&rest.Config{Host: "https://localhost:1", ExecProvider: &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: plugin, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	asked := make(chan error, 1)
	go func() {
		_, err := a.version(ctx)
		asked <- err
	}()
	select {
	case err := <-asked:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it waits for the plugin")
	}
}

func TestAPIServerEncryption(t *testing.T) {
	for _, c := range []struct {
		host     string
		insecure bool
		level    Level
		says     string
	}{
		{"https://10.0.0.1:6443", false, OK, "the connection is encrypted"},
		{"https://10.0.0.1:6443", true, Warn, "certificate is not checked"},
		{"https://127.0.0.1:6443", true, OK, "the connection is encrypted"},
		{"http://10.0.0.1:8080", false, Warn, "not encrypted"},
		{"http://localhost:8080", false, OK, "does not leave this machine"},
		{"http://[::1]:8080", false, OK, "does not leave this machine"},
	} {
		a, err := newAPIServer(&rest.Config{Host: c.host, TLSClientConfig: rest.TLSClientConfig{Insecure: c.insecure}})
		if err != nil {
			t.Fatal(err)
		}
		if f := a.encryption(); f.Level != c.level || !strings.Contains(f.Finding, c.says) {
			t.Errorf("%s, insecure %v: %v", c.host, c.insecure, f)
		}
	}
}

// Each verb that a store needs is judged.
func TestKubernetesVerbsAreJudged(t *testing.T) {
	for _, r := range k8sstore.Rights() {
		for _, verb := range r.Verbs {
			all := kubernetesRights("jobs", "", map[string][]string{r.Resource: {verb}})
			if text := fmt.Sprint(all); !strings.Contains(text, "the credentials must not "+verb+" ") {
				t.Errorf("without %s of %s: %s", verb, r.Resource, text)
			}
		}
	}
	if all := kubernetesRights("jobs", "app", nil); len(all) != 1 || all[0].Level != OK {
		t.Errorf("with all rights: %v", all)
	}
}
