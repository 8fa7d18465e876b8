// SPDX-FileCopyrightText: The Tenure Authors
// SPDX-License-Identifier: Apache-2.0

// Package deploy_test reads the deployment files of the guides as their programs do.
package deploy_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

const folder = "../../../docs/guides/service"

// The Compose file is valid by the schema of Compose, without unknown fields.
func TestCompose(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{filepath.Join(folder, "compose.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	service, err := project.GetService("tenured")
	if err != nil {
		t.Fatal(err)
	}
	if n := service.GetScale(); n != 3 {
		t.Errorf("%d replicas", n)
	}
	for _, path := range append([]string{"/run/secrets/postgres_password"}, service.Command...) {
		if secret, ok := strings.CutPrefix(path, "/run/secrets/"); ok && !slices.ContainsFunc(service.Secrets, func(s types.ServiceSecretConfig) bool { return s.Source == secret }) {
			t.Errorf("the secret %q is used, and not there", secret)
		}
	}
	if service.Build == nil {
		t.Fatal("the image is not built")
	}
	if _, err := os.Stat(filepath.Join(service.Build.Context, service.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	if ports := project.Services["proxy"].Ports; len(ports) != 1 || ports[0].HostIP != "127.0.0.1" {
		t.Errorf("the proxy is open to others: %+v", ports)
	}
}

// platforms has the files of Compose and Kubernetes for a program with one active replica.
const platforms = "../../../docs/guides/platforms"

// The files for Compose and Kubernetes are valid, have two replicas, and time to
// stop.
func TestPlatforms(t *testing.T) {
	options, err := cli.NewProjectOptions([]string{filepath.Join(platforms, "compose.yaml")}, cli.WithName("recipe"))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	service, err := project.GetService("scheduler")
	if err != nil {
		t.Fatal(err)
	}
	if service.GetScale() != 2 || service.StopGracePeriod == nil {
		t.Errorf("%d replicas, which have %v to stop", service.GetScale(), service.StopGracePeriod)
	}

	text, err := os.ReadFile(filepath.Join(platforms, "deployment.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template
	if *d.Spec.Replicas != 2 || pod.Spec.TerminationGracePeriodSeconds == nil || d.Spec.Selector.MatchLabels["app"] != pod.Labels["app"] {
		t.Errorf("the Deployment is %+v", d.Spec)
	}
}

// The proxy's configuration is read by the proxy itself, where it is installed.
func TestProxy(t *testing.T) {
	program, err := exec.LookPath("haproxy")
	if err != nil {
		t.Skip("there is no haproxy: apt-get install haproxy")
	}
	out, err := exec.CommandContext(t.Context(), program, "-c", "-f", filepath.Join(folder, "haproxy.cfg")).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("[WARNING]")) {
		t.Errorf("%v: %s", err, out)
	}
}

// The manifests are objects of Kubernetes, without unknown fields.
func TestManifests(t *testing.T) {
	kinds := map[string]func() any{
		"ServiceAccount":      func() any { return new(corev1.ServiceAccount) },
		"Service":             func() any { return new(corev1.Service) },
		"Deployment":          func() any { return new(appsv1.Deployment) },
		"PodDisruptionBudget": func() any { return new(policyv1.PodDisruptionBudget) },
		"Role":                func() any { return new(rbacv1.Role) },
		"RoleBinding":         func() any { return new(rbacv1.RoleBinding) },
	}
	seen := map[string]bool{}
	for _, file := range []string{"kubernetes.yaml", "kubernetes-store.yaml"} {
		text, err := os.ReadFile(filepath.Join(folder, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range strings.Split(string(text), "\n---\n") {
			var of struct{ Kind string }
			if err := yaml.Unmarshal([]byte(object), &of); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			into := kinds[of.Kind]
			if into == nil {
				t.Fatalf("%s: a %q is not looked at", file, of.Kind)
			}
			seen[of.Kind] = true
			read := into()
			if err := yaml.UnmarshalStrict([]byte(object), read); err != nil {
				t.Errorf("%s: %s: %v", file, of.Kind, err)
			}
			if d, ok := read.(*appsv1.Deployment); ok {
				checkDeployment(t, d)
			}
		}
	}
	if len(seen) != len(kinds) {
		t.Errorf("only %v were found", seen)
	}
}

// checkDeployment compares the times of a rolling update with each other, and the mounts with
// the flags.
func checkDeployment(t *testing.T, d *appsv1.Deployment) {
	t.Helper()
	const drain, calls, closing = 5, 5, 5 // seconds, of tenured by default
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if *pod.TerminationGracePeriodSeconds <= drain+calls+closing {
		t.Errorf("it is killed after %d s, and may need %d s to stop", *pod.TerminationGracePeriodSeconds, drain+calls+closing)
	}
	if p := c.ReadinessProbe; p.PeriodSeconds*p.FailureThreshold*2 > drain {
		t.Errorf("it may be taken for ready for %d s, and drains for %d s", p.PeriodSeconds*p.FailureThreshold, drain)
	}
	if d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 || *d.Spec.Replicas != 3 {
		t.Error("a rolling update leaves fewer than three replicas")
	}
	for _, arg := range c.Args {
		_, path, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(path, "/") && !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix(path, m.MountPath+"/") }) {
			t.Errorf("%s is in no volume", arg)
		}
	}
	if !*pod.SecurityContext.RunAsNonRoot || !*c.SecurityContext.ReadOnlyRootFilesystem || *c.SecurityContext.AllowPrivilegeEscalation {
		t.Error("the container may do more than it needs")
	}
}
