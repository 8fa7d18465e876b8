// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/tenurelock/tenure/internal/enginetest"
	"github.com/tenurelock/tenure/k8sstore"
)

// TestKubernetesScripts runs the scripts of testdata/kubernetes, and those of testdata that
// are for any store. STORE is a namespace in which the user app has the rights that a
// store needs. BARE is a namespace in which it has no rights, which the command
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
		return os.Symlink(filepath.Join(filepath.Dir(kubeconfig), "apiserver.crt"),
			filepath.Join(env.WorkDir, "apiserver.crt"))
	})
}

// The manifests of the lock service.
const (
	serviceManifest      = "../../../docs/guides/service/kubernetes.yaml"
	serviceStoreManifest = "../../../docs/guides/service/kubernetes-store.yaml"
)

// TestKubernetesService has an API server take the manifests of the lock service, as they
// are but for the namespace, and with each field known to it. The role for the store is the
// role that tenure prints.
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
				if _, err := enginetest.TryInKubernetes(t, kubeconfig, path, wrong); err == nil ||
					!strings.Contains(err.Error(), "readyProbe") {
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
	printed, err := exec.CommandContext(t.Context(), "tenure", "table", "policy",
		"--store", "kubernetes://tenured").Output()
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

// cronJobManifest is the file with the CronJob, its account and its binding.
const cronJobManifest = "../../../docs/guides/platforms/cronjob.yaml"

// cronJob is what the test looks at of one, as the API server has it.
type cronJob struct {
	Spec struct {
		Schedule, TimeZone string
		JobTemplate        struct {
			Spec struct {
				Template struct {
					Spec struct {
						ServiceAccountName string
						Containers         []struct {
							Command []string
							Env     []struct{ Name, Value string }
						}
					}
				}
			}
		}
	}
}

// TestKubernetesCronJob has an API server take the manifest, as it is but for
// the namespace, and with each field known to it. The command of its container is run by
// hand then, as the service account: by several Pods at once, and once more.
func TestKubernetesCronJob(t *testing.T) {
	kubeconfig := enginetest.Shared(t, enginetest.Kubernetes, "kubernetes")
	namespace := enginetest.KubernetesNamespace(t, kubeconfig)
	s := newHarness(t)

	paths := map[string]string{
		"ServiceAccount": "/api/v1/namespaces/" + namespace + "/serviceaccounts",
		"Role":           "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/roles",
		"RoleBinding":    "/apis/rbac.authorization.k8s.io/v1/namespaces/" + namespace + "/rolebindings",
		"CronJob":        "/apis/batch/v1/namespaces/" + namespace + "/cronjobs",
	}
	role, err := exec.CommandContext(t.Context(), "tenure", "table", "policy", "--store", "kubernetes://jobs").Output()
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]string{}
	text, err := os.ReadFile(cronJobManifest)
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range append([]string{string(role)}, strings.Split(string(text), "\n---\n")...) {
		object = strings.NewReplacer(
			"namespace: jobs\n", "namespace: "+namespace+"\n", `namespace: "jobs"`, `namespace: "`+namespace+`"`,
		).Replace(object + "\n")
		_, kind, _ := strings.Cut(object, "\nkind: ")
		kind, _, _ = strings.Cut(kind, "\n")
		path := paths[kind] + "?fieldValidation=Strict"
		if kind == "CronJob" {
			wrong := strings.Replace(object, "startingDeadlineSeconds", "startDeadlineSeconds", 1)
			if _, err := enginetest.TryInKubernetes(t, kubeconfig, path, wrong); err == nil ||
				!strings.Contains(err.Error(), "startDeadlineSeconds") {
				t.Fatalf("a field that there is not is taken: %v", err)
			}
		}
		made[kind] = enginetest.CreateInKubernetes(t, kubeconfig, path, object)
	}
	if len(made) != len(paths) {
		t.Fatalf("of %v there is %v", paths, made)
	}

	var job cronJob
	if err := json.Unmarshal([]byte(made["CronJob"]), &job); err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.JobTemplate.Spec.Template.Spec
	command := pod.Containers[0].Command
	for flag, want := range map[string]string{"--cron": job.Spec.Schedule, "--tz": job.Spec.TimeZone} {
		if at := slices.Index(command, flag); at < 0 || command[at+1] != want {
			t.Errorf("the command %q has another %s than %q", command, flag, want)
		}
	}

	// What a Pod finds: its account's token, the cluster, and the variables.
	var asked struct{ Status struct{ Token string } }
	account := enginetest.CreateInKubernetes(t, kubeconfig, paths["ServiceAccount"]+"/"+pod.ServiceAccountName+"/token",
		`{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}`)
	if err := json.Unmarshal([]byte(account), &asked); err != nil || asked.Status.Token == "" {
		t.Fatalf("%s: %v", account, err)
	}
	enginetest.AwaitInKubernetes(t, kubeconfig, asked.Status.Token, namespace)
	config, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	s.write("kubeconfig", strings.NewReplacer(
		"token: app", "token: "+asked.Status.Token,
		"user: app, namespace: default", "user: app, namespace: "+namespace,
		"current-context: admin", "current-context: app",
		"apiserver.crt", filepath.Join(filepath.Dir(kubeconfig), "apiserver.crt"),
	).Replace(string(config)))
	s.write("report", "#!/bin/sh\necho $TENURE_SLOT $TENURE_TOKEN >>\"$DIR/ran\"\n")
	if err := os.Chmod(s.path("report"), 0o700); err != nil {
		t.Fatal(err)
	}
	env := []string{"KUBECONFIG=" + s.path("kubeconfig")}
	for _, e := range pod.Containers[0].Env {
		env = append(env, e.Name+"="+e.Value)
	}
	words := []string{"-u", "TENURE_STORE"}
	words = append(words, env...)
	for _, word := range command {
		word = strings.NewReplacer("/usr/local/bin/tenure", "tenure", "/usr/local/bin/report", s.path("report")).Replace(word)
		words = append(words, word)
	}
	begin := func() *process { return s.run(exec.Command("env", words...)) }
	for _, p := range []*process{begin(), begin(), begin()} {
		if status := p.status(); status != 0 {
			t.Errorf("a Pod ends with status %d", status)
		}
	}
	if status := begin().status(); status != 0 {
		t.Errorf("a later Pod ends with status %d", status)
	}
	// One, if this was not at the minute at which the next slot begins.
	ran := strings.Fields(s.read("ran"))
	if len(ran) == 0 || len(ran) > 4 || len(ran) == 4 && ran[0] == ran[2] {
		t.Errorf("it ran for the slots and tokens %q", ran)
	}
	show := exec.CommandContext(t.Context(), "env", append(slices.Clone(env),
		"tenure", "once", "nightly", "--show", "--json")...)
	show.Env = s.env()
	out, err := show.Output()
	if err != nil || !strings.Contains(string(out), `"state":"done"`) ||
		strings.Count(string(out), `"slot":`) != len(ran)/2 {
		t.Errorf("%s, %v", out, err)
	}
}
