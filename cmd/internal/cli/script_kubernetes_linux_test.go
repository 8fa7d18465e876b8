// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/k8sstore"
)

// TestKubernetesScripts runs the scripts of testdata/kubernetes, and those of testdata that
// are for any store. STORE is a namespace in which the user app has the rights that a
// store needs. BARE is one in which it has none, which the command
//
//	grant NAME FILE
//
// changes: it gives app the Role of that name. KUBE is the kubeconfig, and SERVER the
// address in it.
func TestKubernetesScripts(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	text, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	_, server, _ := strings.Cut(string(text), "https://")
	server, _, _ = strings.Cut(server, `"`)
	runStoreScripts(t, "kubernetes", map[string]func(*testscript.TestScript, bool, []string){
		"grant": func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != 2 {
				ts.Fatalf("usage: grant NAME FILE")
			}
			enginetest.GrantInKubernetes(t, kubeconfig, ts.Getenv("BARE"), args[0], ts.ReadFile(args[1]))
		},
	}, func(env *testscript.Env) error {
		namespace, bare := enginetest.KubernetesNamespace(t, kubeconfig), enginetest.KubernetesNamespace(t, kubeconfig)
		enginetest.GrantInKubernetes(t, kubeconfig, namespace, "locks", k8sstore.Policy(namespace, "locks"))
		for _, pair := range [][2]string{
			{"KUBE", kubeconfig},
			{"SERVER", server},
			{"NAMESPACE", namespace},
			{"STORE", "kubernetes://" + namespace + "?kubeconfig=" + kubeconfig + "&context=app"},
			{"BARE", bare},
		} {
			env.Setenv(pair[0], pair[1])
		}
		return os.Symlink(filepath.Join(filepath.Dir(kubeconfig), "apiserver.crt"), filepath.Join(env.WorkDir, "apiserver.crt"))
	})
}
