// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/tenurelock/tenure/internal/enginetest"
)

// The manifests of the lock service.
const (
	serviceManifest      = "../../../docs/guides/service/kubernetes.yaml"
	serviceStoreManifest = "../../../docs/guides/service/kubernetes-store.yaml"
)

// TestKubernetesService has an API server take the manifests of the lock service, as they
// are but for the namespace, and with each field known to it. The role for the store is the
// one that tenure prints.
func TestKubernetesService(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	namespace := enginetest.KubernetesNamespace(t, kubeconfig)
	paths := map[string]string{
		"ServiceAccount":      "/api/v1/namespaces/" + namespace + "/serviceaccounts",
		"Service":             "/api/v1/namespaces/" + namespace + "/services",
		"Deployment":          "/apis/apps/v1/namespaces/" + namespace + "/deployments",
		"PodDisruptionBudget": "/apis/policy/v1/namespaces/" + namespace + "/poddisruptionbudgets",
		"Role":                "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles",
		"RoleBinding":         "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/rolebindings",
	}
	made := map[string]bool{}
	for _, file := range []string{serviceManifest, serviceStoreManifest} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range strings.Split(string(text), "\n---\n") {
			object = strings.ReplaceAll(object, "namespace: tenured", "namespace: "+namespace) + "\n"
			kind := regexp.MustCompile(`(?m)^kind: (.*)$`).FindStringSubmatch(object)
			if kind == nil || paths[kind[1]] == "" {
				t.Fatalf("%s has something else: %s", file, object)
			}
			path := paths[kind[1]] + "?fieldValidation=Strict"
			if kind[1] == "Deployment" {
				wrong := strings.Replace(object, "readinessProbe:", "readyProbe:", 1)
				if _, err := enginetest.TryInKubernetes(t, kubeconfig, path, wrong); err == nil || !strings.Contains(err.Error(), "readyProbe") {
					t.Fatalf("a field that there is not is taken: %v", err)
				}
			}
			enginetest.CreateInKubernetes(t, kubeconfig, path, object)
			made[kind[1]] = true
		}
	}
	if len(made) != len(paths) {
		t.Errorf("of %v there is %v", paths, made)
	}
}

// The role in the manifest has the rights that tenure prints, and no others.
func TestServiceRole(t *testing.T) {
	printed, err := exec.CommandContext(t.Context(), "tenure", "table", "policy", "--store", "kubernetes://tenured").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(serviceStoreManifest)
	if err != nil {
		t.Fatal(err)
	}
	_, rules, found := strings.Cut(string(printed), "\nrules:\n")
	if !found || !strings.Contains(string(text), "\nrules:\n"+strings.TrimRight(rules, "\n")+"\n---\n") {
		t.Errorf("the manifest has other rules than\n%s", rules)
	}
}
